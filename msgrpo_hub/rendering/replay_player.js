/* The replay player: one or two episodes from the same seed, turn by turn. Text from the data is set as text, never as markup. */

const TURN_MS = 1000;

/** An HTML element with attributes and children; a child may be text. */
function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function unsigned(value) {
  const shown = Number.isInteger(value) ? String(Math.abs(value)) : Math.abs(value).toFixed(3);
  return Number(shown) === 0 ? "0" : shown;
}

function signed(value) {
  const shown = unsigned(value);
  return shown === "0" ? shown : (value < 0 ? "−" : "+") + shown;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * A replay player in an element of the page. `show({ players })` starts a replay of one or two players; each has its name
 * (`player`), its `game`, the data of its episode and, if the page has them, `system` and each step's `prompt`.
 *
 * heading: level of the players' names; the heading of a reply is one level below.
 * takesKey: whether the arrow keys step, from the element that has the focus; by default, if it is inside the player.
 */
function replayPlayer(element, { heading = 2, takesKey } = {}) {
  const { controls, back, play, forward, difference, output, slider, mark } = replayControls();
  const panels = html("div", { class: "replay-panels" });
  const root = html("div", { class: "replay", role: "group", "aria-label": "Replay" }, panels, controls);
  const focused = takesKey ?? ((target) => root.contains(target));
  let players = [];
  let timer = null;
  let turn = 0;

  const last = () => Math.max(...players.map(({ steps }) => steps.length));

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function start() {
    if (turn === last()) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (!root.isConnected) return pause();
      go(turn + 1);
      if (turn === last()) pause();
    }, TURN_MS);
  }

  function jump(wanted) {
    pause();
    go(wanted);
  }

  function go(wanted) {
    const before = turn;
    turn = Math.min(Math.max(wanted, 0), last());
    const text = turn < last() ? `turn ${turn + 1} of ${last()}` : `the end, after ${last()} turn${last() === 1 ? "" : "s"}`;
    output.textContent = text;
    slider.value = turn;
    slider.setAttribute("aria-valuetext", text);
    back.disabled = turn === 0;
    forward.disabled = turn === last();
    for (const [index, player] of players.entries()) showTurn(panels.children[index], player, turn, turn === before + 1);
  }

  function show(data) {
    pause();
    if (!data || !data.players || !data.players.length) return root.remove();
    players = data.players;
    turn = 0;
    root.classList.toggle("replay-two", players.length > 1);
    panels.replaceChildren(...players.map((player, index) => replayPanel(player, heading, index, players.length)));
    if (!element.contains(root)) element.replaceChildren(root);
    slider.max = last();
    const different = firstDifference(...players);
    difference.hidden = players.length < 2;
    difference.disabled = mark.hidden = different === null;
    difference.textContent = different === null ? "No difference" : `First difference: turn ${different + 1}`;
    if (different !== null) mark.style.left = `calc(8px + (100% - 16px) * ${different / last()})`;
    go(0);
  }

  slider.addEventListener("input", () => jump(Number(slider.value)));
  play.addEventListener("click", () => (timer === null ? start() : pause()));
  back.addEventListener("click", () => jump(turn - 1));
  forward.addEventListener("click", () => jump(turn + 1));
  difference.addEventListener("click", () => jump(firstDifference(...players)));
  document.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turns || event.altKey || event.ctrlKey || event.metaKey || !root.isConnected || !focused(event.target)) return;
    event.preventDefault();
    jump(turn + turns);
  });
  return { show };
}

/** Buttons, the slider, and the mark of the first difference under it. */
function replayControls() {
  const button = (name, text, attributes = {}) => html("button", { type: "button", class: `replay-${name}`, ...attributes }, text);
  const back = button("back", "◀", { "aria-label": "One turn back" });
  const play = button("play", "Play");
  const forward = button("forward", "▶", { "aria-label": "One turn on" });
  const difference = button("difference", "First difference");
  const output = html("output", { class: "replay-turn" });
  const slider = html("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Turn" });
  const mark = html("span", { class: "replay-mark", "aria-hidden": "true" });
  const buttons = html("div", { class: "replay-buttons" }, back, play, forward, difference, output);
  const controls = html("div", { class: "replay-controls" }, buttons, html("div", { class: "replay-track" }, slider, mark));
  return { controls, back, play, forward, difference, output, slider, mark };
}

/** One player's place: board and status; actions, totals, reply and, if it is known, the prompt. */
function replayPanel({ player, system }, heading, index, count) {
  const whose = index ? `${player}, on the right` : player;
  const scrolls = (what) => ({ tabindex: 0, role: "region", "aria-label": `${what} of ${whose}` });
  const board = html("div", { class: "replay-left" },
    html(`h${heading}`, {}, player), html("div", { class: "replay-board" }), html("p", { class: "replay-status" }));
  const text = html("div", { class: "replay-text" },
    html("ul", { class: "replay-actions", "aria-label": "Actions" }), html("div", { class: "replay-totals" }),
    html(`h${heading + 1}`, {}, "Reply"), html("pre", { class: "replay-reply", ...scrolls("Reply") }));
  if (system !== undefined) {
    const prompt = html("details", { class: "replay-prompt" }, html("summary", {}, "Prompt"),
      html("pre", { class: "replay-system", ...scrolls("Constant part of the prompt") }, system),
      html("pre", { class: "replay-observation", ...scrolls("Observation") }));
    prompt.open = count === 1 && window.innerWidth > 700;
    text.append(prompt);
  }
  return html("article", { class: "replay-panel", "aria-label": player }, board, text);
}

/** Fills a panel with one turn, or with the end if the episode is over. */
function showTurn(panel, player, wanted, moves) {
  const { game, states, steps } = player;
  const turn = Math.min(wanted, steps.length);
  const step = steps[turn];
  const board = drawBoard(game, player, turn, `Board of ${player.player}, turn ${turn + 1}`);
  panel.querySelector(".replay-board").replaceChildren(board);
  if (moves && wanted <= steps.length) glide(board, game, states[turn - 1], states[turn]);
  panel.classList.toggle("replay-over", !step);
  panel.querySelector(".replay-status").replaceWith(replayStatus(player, step));
  panel.querySelector(".replay-actions").replaceChildren(...replayActions(game, step));
  panel.querySelector(".replay-totals").replaceChildren(...replayTotals(steps, turn));
  panel.querySelector(".replay-reply").textContent = step ? step.reply : "";
  const observation = panel.querySelector(".replay-observation");
  if (observation) observation.textContent = step ? step.prompt : "";
}

/** The first turn, from 0, on which two players do not make the same move; null if they never differ, or there is only one. */
function firstDifference(a, b) {
  if (!b) return null;
  const moveOf = (step) => step.move ?? step.action; // `move`: the same number under all names of an action
  const turn = a.steps.findIndex((step, index) => !b.steps[index] || moveOf(step) !== moveOf(b.steps[index]));
  return turn >= 0 ? turn : b.steps.length > a.steps.length ? a.steps.length : null;
}

/** The actions, each with what it is on this turn: illegal, optimal, chosen. */
function replayActions(game, step) {
  return game.actions.map((action, index) => {
    const kinds = step
      ? [
          !step.legal.includes(index) && "illegal",
          step.optimal.includes(index) && step.optimal.length < game.actions.length && "optimal",
          step.action === index && "chosen",
        ].filter(Boolean)
      : [];
    const words = kinds.join(", ") || (step ? "legal" : "");
    const item = html("li", { class: kinds.map((kind) => `is-${kind}`).join(" "), title: words }, action);
    item.append(html("span", { class: "unseen" }, words && ` (${words})`));
    return item;
  });
}

function replayStatus({ game, ending, steps }, step) {
  if (!step) {
    const kind = ["success", "survived"].includes(ending) ? "good" : "bad";
    return html("p", { class: `replay-status ${kind}` }, `The end: ${ending}, reward ${signed(sum(steps.map(({ reward }) => reward)))}`);
  }
  const action = game.actions[step.action];
  const [kind, words] = {
    ok: judgement(game, step, action),
    illegal: ["bad", `${action}, illegal`],
    unreadable: ["bad", "Unparsed: no action found in the reply"],
    truncated_reply: ["bad", "Truncated at the token limit"],
  }[step.status];
  return html("p", { class: `replay-status ${kind}` }, words);
}

/** How good an action was, if that is known. If all are optimal (nothing is left to win), none deserves praise. */
function judgement(game, step, action) {
  if (step.optimal.length === 0) return ["", action];
  if (step.optimal.length === game.actions.length) return ["", `${action}, as good as any`];
  return step.optimal.includes(step.action) ? ["good", `${action}, optimal`] : ["caution", `${action}, not optimal`];
}

/** Reward and regret: the sum over the turns before, and the value of this turn. */
function replayTotals(steps, turn) {
  return [["reward", signed], ["regret", unsigned]].flatMap(([name, shown]) => {
    const values = steps.map((step) => step[name]);
    if (!values.length || values.includes(null)) return [];
    const line = html("p", {}, `${name} `, html("b", {}, shown(sum(values.slice(0, turn)))), " so far");
    if (turn < values.length) line.append(", ", html("b", {}, shown(values[turn])), " now");
    return [line];
  });
}

// ---- motion from one board to the next

const GLIDE = { duration: 260, easing: "ease-in-out" };

/** Moves the player from the last state to this one. The board shows this state already, and the animations end on it. */
function glide(board, game, before, after) {
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const walker = board.querySelector("use[href='#walker']");
  if (walker) slide(walker, before.walker, after.walker, game.columns);
  for (const [who, name] of ["you", "opponent"].entries()) {
    const [old, now] = [before, after].map((state) => (state.bodies || [])[who]);
    if (!now || old[0] === now[0]) continue;
    slide(board.querySelector(`.head.${name}`).parentElement, old[0], now[0], game.columns);
    for (const part of ["body", "belly"]) creep(board.querySelector(`.${part}.${name}`), old, now, game.columns);
  }
}

/** Moves an element from one cell to another; its own transform stays. */
function slide(element, from, to, columns) {
  const [[x, y], [u, v]] = [from, to].map((cell) => middle(cell, columns));
  const group = svg("g");
  element.replaceWith(group);
  group.append(element);
  group.animate([{ transform: `translate(${x - u}px, ${y - v}px)` }, { transform: "none" }], GLIDE);
}

/** Moves a body: a dash that follows the path of the head. A path of length zero is not drawn, hence the last .001. */
function creep(path, old, now, columns) {
  const cells = [...old].reverse().concat(now[0]);
  const whole = path.cloneNode();
  whole.setAttribute("d", `M${cells.map((cell) => middle(cell, columns).join(" ")).join("L")}h.001`);
  path.replaceWith(whole);
  const dash = (body, tail) => ({ strokeDasharray: `${body.length - 1}px 999px`, strokeDashoffset: `${-tail}px` });
  const animation = whole.animate([dash(old, 0), dash(now, cells.length - now.length)], GLIDE);
  animation.onfinish = () => whole.replaceWith(path);
}
