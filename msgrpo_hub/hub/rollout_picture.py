"""The picture of a rollout data set's card: an animated replay of episodes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.games import make_game
from msgrpo_hub.rendering.replay import replay_svg
from msgrpo_hub.storage.tables import Origin, Rollout

PICTURE = "replay.svg"
KEPT = 50
"""Episodes of each player among which the picture's are chosen."""


@dataclass(kw_only=True)
class RolloutPicture:
    """The first episodes of each player in the data set's first game, collected while its shards are written."""

    game_id: str = ""
    players: dict[str, dict[int, Rollout]] = field(default_factory=dict)
    """Player → seed → the first episode from it."""

    def add(self, origin: Origin, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            self.game_id = self.game_id or rollout.episode.game_id
            kept = self.players.setdefault(origin.player, {})
            if rollout.episode.game_id == self.game_id and len(kept) < KEPT:
                kept.setdefault(rollout.episode.seed, rollout)

    def chosen(self) -> list[tuple[str, Rollout]]:
        """The worst and the best player on the seed where they differ most; without a common seed, one good episode."""
        worst, *_, best = [name for name in sorted(self.players, key=self._mean) if self.players[name]] * 2
        one, other = self.players[worst], self.players[best]
        common = [seed for seed in one if seed in other]
        if worst == best or not common:
            return [(best, max(other.values(), key=lambda rollout: rollout.episode.reward))]
        seed = max(common, key=lambda seed: other[seed].episode.reward - one[seed].episode.reward)
        return [(worst, one[seed]), (best, other[seed])]

    def _mean(self, player: str) -> float:
        kept = self.players[player].values()
        return sum(rollout.episode.reward for rollout in kept) / max(len(kept), 1)

    def draw(self) -> str:
        """The animated SVG."""
        chosen = self.chosen()
        prompt_format = PROMPT_FORMATS.get(chosen[0][1].prompt_format, THINK_ACTION)
        return replay_svg(make_game(self.game_id), [(name, rollout.episode) for name, rollout in chosen], prompt_format)

    def names(self) -> list[str]:
        """The players that it shows."""
        return [name for name, _ in self.chosen()]
