/* A board to play on, and how the visitor fares against the agent. */

const ARROWS = { ArrowLeft: 0, ArrowDown: 1, ArrowRight: 2, ArrowUp: 3 };

/** A board to play on. Only the visitor's page keeps the moves so far. */
function mountGame(element, props, server, watch) {
  let shown = null;
  let waiting = [];
  let busy = false;
  let first = null;
  const tallies = new Map(); // game and opponent → boards that the visitor won, that were even, and that the agent won
  const goal = html("p", { class: "caption" });
  const board = html("div", { class: "replay-board" });
  const pad = html("div", { class: "pad", role: "group", "aria-label": "Moves" });
  const status = html("p", { class: "replay-status", role: "status", "aria-live": "polite" });
  const results = html("div", { class: "results" });
  const stage = html("div", { class: "stage" });
  const rules = html("pre", { tabindex: 0, role: "region", "aria-label": "What a model is told" });
  const prompt = html("details", { class: "replay-prompt" }, html("summary", {}, "What a model is told"), rules);
  const press = (name, does) => {
    const button = html("button", { type: "button" }, name);
    button.addEventListener("click", does);
    return button;
  };
  const more = html("div", { class: "more" }, press("Again", again), press("Next board", next));
  prompt.open = window.innerWidth > 700;
  const left = html("div", { class: "replay-left" }, board);
  const right = html("div", { class: "replay-text" }, status, pad, more, results, prompt);
  const root = html("div", { class: "replay yours", tabindex: 0, role: "group", "aria-label": "Your game: arrow keys move" },
    html("div", { class: "replay-panel" }, left, right), stage);
  const agent = replayPlayer(stage);

  function draw() {
    const turn = shown.states.length - 1;
    board.replaceChildren(drawBoard(shown.game, shown, turn, `Your board, turn ${turn + 1}`));
    if (turn > 0) glide(board.firstChild, shown.game, shown.states[turn - 1], shown.states[turn]);
    status.className = `replay-status ${shown.over ? (shown.success ? "good" : "bad") : ""}`;
    status.textContent = shown.over
      ? `The end: you ${shown.ended.replace("itself", "yourself")}, reward ${signed(shown.reward)}`
      : `Turn ${turn + 1} of ${turn + shown.turns_left}, reward ${signed(shown.reward)}`;
    rules.textContent = shown.rules;
    pad.hidden = shown.over;
    more.hidden = !shown.over;
  }

  function again() {
    begin(first);
    root.focus({ preventScroll: true });
  }

  /** Asks for the next board as the visitor would: by the input and the button. */
  function next() {
    const panel = element.closest("[role=tabpanel]");
    const input = inputOf(panel, "Board");
    input.value = (first.number + 1) % 10000;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    setTimeout(() => buttonOf(element, "New game").click(), 100);
  }

  function begin(given) {
    shown = first = given;
    waiting = [];
    results.replaceChildren();
    stage.replaceChildren();
    if (!shown) return root.remove();
    const [title, id] = shown.caption;
    goal.replaceChildren(title, " ", html("small", {}, id), html("br"), html("span", {}, shown.goal));
    remember("play-board", element, shown.asked);
    pad.replaceChildren(...shown.game.actions.map((action, index) => {
      const way = direction(shown.game, index);
      const arrow = way ? ["←", "↓", "→", "↑"][[way[0] < 0, way[1] > 0, way[0] > 0, way[1] < 0].indexOf(true)] : "";
      const button = html("button", { type: "button", "data-way": arrow }, `${arrow} ${action}`.trim());
      button.addEventListener("click", () => move(action));
      return button;
    }));
    if (!element.contains(root)) element.replaceChildren(goal, root);
    draw();
  }

  /** Plays the moves one after the other, in the order of the keys; those beyond the last turn are dropped. */
  async function move(action) {
    if (!shown || shown.over || waiting.length >= shown.turns_left) return;
    waiting.push(action);
    if (busy) return;
    busy = true;
    while (waiting.length && !shown.over) {
      const asked = { game: shown.game.title, seed: shown.number, actions: shown.actions, action: waiting.shift() };
      const before = shown;
      const after = await server.play_step(asked).catch(() => ({ error: "The Space did not answer: try again." }));
      if (shown !== before) break; // another game has begun
      if (after.error) {
        status.textContent = after.error;
        break;
      }
      shown = after;
      draw();
    }
    busy = false;
    if (shown.over) finish();
    else waiting = [];
  }

  async function finish() {
    const mine = shown;
    results.replaceChildren(html("p", { class: "count" }, "The agent plays the same board …"));
    const asked = { game: shown.game.title, seed: shown.number, player: first.player };
    const found = await server.named_result(asked).catch(() => ({ error: "The Space did not answer: try again." }));
    if (shown !== mine) return;
    if (found.error) return results.replaceChildren(html("p", { class: "bad" }, found.error));
    const rows = [["you", mine.reward, mine.steps.length, mine.success], ...["agent", "best"].map((role) => {
      const { title, reward, turns, success } = found[role];
      return [title, reward, turns, success];
    })];
    const body = html("tbody", {}, ...rows.map(([name, reward, turns, success]) =>
      html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, signed(reward)), html("td", {}, String(turns)), html("td", {}, success ? "yes" : "no"))));
    const heads = ["Player", "Reward", "Turns", "Success"].map((name) => html("th", { scope: "col" }, name));
    const table = html("table", { class: "scores" }, html("thead", {}, html("tr", {}, ...heads)), body);
    results.replaceChildren(html("p", { class: "verdict" }, html("b", {}, tally(found.agent, mine.reward))), table);
    const value = found.best.value_optimal;
    if (value !== null && value % 1) results.append(html("p", { class: "count" }, `Optimal play gets ${value.toFixed(3)} on this board on average.`));
    stage.replaceChildren();
    agent.show(found.film);
  }

  /** How the visitor has fared against this agent so far, this board included. */
  function tally(agent, mine) {
    const key = `${shown.game.title} ${agent.player}`;
    const sofar = tallies.get(key) ?? [0, 0, 0];
    sofar[1 - Math.sign(mine - agent.reward)] += 1;
    tallies.set(key, sofar);
    const [won, even, lost] = sofar;
    return `You ${won}, ${agent.title} ${lost}${even ? `, even ${even}` : ""}`;
  }

  /** Arrow keys move if the focus is on the game, or on something that has no use for them. */
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    const idle = target === document.body || target.getAttribute("role") === "tab";
    const mine = root.contains(target) && !stage.contains(target);
    if (!(event.key in ARROWS) || !root.offsetParent || !(mine || idle)) return;
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (event.repeat && busy) return; // a key held down moves at the server's pace, and stops when it is let go
    const arrow = ["←", "↓", "→", "↑"][ARROWS[event.key]];
    const button = [...pad.children].find((each) => each.dataset.way === arrow);
    if (button) button.click();
  });
  const load = () => begin(props.value ? JSON.parse(props.value) : null);
  watch("value", () => { load(); root.focus({ preventScroll: true }); });
  load();
}
