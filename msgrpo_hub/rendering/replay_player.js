/* The replay player: one or two episodes from the same seed, turn by turn. Text from the data is set as text, never as markup. */

const TURN_MS = 1000;
const REST = 3; // turns for which the end stands before it begins again

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
 * (`player`), its `game`, the data of its episode and, if the page has them, a readable name (`title`), `system` and each
 * step's `prompt`. An episode that is still played says in `waits` for what. `show` takes the `turn` to begin with; data that
 * `grows` is the replay on the page with more turns, which a reader of the last turn goes on to. `begin` plays, and `begin(true)` again and again.
 *
 * heading: level of the players' names; the heading of a reply is one level below.
 * takesKey: whether the arrow keys step, from the element that has the focus; by default, if it is inside the player.
 * onTurn: called with each turn that the reader has chosen.
 */
function replayPlayer(element, { heading = 2, takesKey, onTurn = () => {} } = {}) {
  const { controls, back, play, forward, difference, output, slider, mark, legend } = replayControls();
  const panels = html("div", { class: "replay-panels" });
  const root = html("div", { class: "replay", role: "group", "aria-label": "Replay" }, controls, panels); // as the focus goes
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

  function begin(again = false) {
    pause();
    if (turn === last()) go(0);
    play.textContent = "Pause";
    let rest = 0;
    timer = setInterval(() => {
      if (!root.isConnected) return pause();
      if (turn < last()) go(turn + 1);
      else if (++rest === REST) go((rest = 0));
      if (turn === last() && !again) pause();
    }, TURN_MS);
  }

  function jump(wanted) {
    pause();
    go(wanted);
    onTurn(turn);
  }

  function go(wanted) {
    const before = turn;
    turn = Math.min(Math.max(wanted, 0), last());
    const waits = turn === last() && players.find((player) => player.waits);
    const text = turn < last() || waits ? `turn ${turn + 1}${waits ? "" : ` of ${last()}`}` : `the end, after ${last()} turn${last() === 1 ? "" : "s"}`;
    output.textContent = text;
    slider.value = turn;
    slider.setAttribute("aria-valuetext", text);
    back.disabled = turn === 0;
    forward.disabled = turn === last();
    for (const [index, player] of players.entries()) showTurn(panels.children[index], player, turn, turn === before + 1);
  }

  function show(data, first = 0) {
    const grows = data && data.grows && root.isConnected;
    if (!grows) pause();
    if (!data || !data.players || !data.players.length) return root.remove();
    const wanted = grows ? (turn === last() ? Infinity : turn) : first;
    const open = grows ? [...panels.querySelectorAll("details")].map((prompt) => prompt.open) : [];
    players = data.players;
    turn = grows ? turn : 0;
    root.classList.toggle("replay-two", players.length > 1);
    panels.replaceChildren(...players.map((player, index) => replayPanel(player, heading, index, players.length)));
    open.forEach((was, index) => (panels.querySelectorAll("details")[index].open = was));
    if (!element.contains(root)) element.replaceChildren(root);
    slider.max = last();
    const different = firstDifference(...players);
    difference.hidden = players.length < 2 || players.some((player) => player.waits);
    difference.disabled = mark.hidden = different === null || difference.hidden;
    difference.textContent = different === null ? "No difference" : `First difference: turn ${different + 1}`;
    if (different !== null) mark.style.left = `calc(8px + (100% - 16px) * ${different / last()})`;
    legend.replaceChildren(...replayLegend(players));
    go(wanted);
  }

  slider.addEventListener("input", () => jump(Number(slider.value)));
  play.addEventListener("click", () => (timer === null ? begin() : pause()));
  back.addEventListener("click", () => jump(turn - 1));
  forward.addEventListener("click", () => jump(turn + 1));
  difference.addEventListener("click", () => jump(firstDifference(...players)));
  document.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turns || event.altKey || event.ctrlKey || event.metaKey || !root.isConnected || !focused(event.target)) return;
    event.preventDefault();
    jump(turn + turns);
  });
  return { show, begin };
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
  const legend = html("ul", { class: "replay-legend", "aria-label": "Legend" });
  const controls = html("div", { class: "replay-controls" }, buttons, html("div", { class: "replay-track" }, slider, mark), legend);
  return { controls, back, play, forward, difference, output, slider, mark, legend };
}

/** What stands on the boards, and the marks on them: pictures with their names. */
function replayLegend(players) {
  const [{ game }] = players;
  const states = players.flatMap((player) => player.states);
  const picture = (...shapes) => svg("svg", { viewBox: "-.5 -.5 1 1", class: "replay-icon", "aria-hidden": "true" }, ...shapes);
  const drawn = game.legend.flatMap(([symbol, name]) => {
    if (states.some(({ pieces }) => symbol in pieces)) return [[name, svg("use", { href: `#${game.pieces[symbol]}` })]];
    if (name === "you") return [["agent", svg("use", { href: "#walker" })]];
    const head = { "your head": "you", "opponent head": "opponent" }[name];
    return head ? [[head === "you" ? "agent" : head, svg("g", { transform: "scale(.9)" }, svg("circle", { class: `head ${head}`, r: 0.43 }), svg("use", { href: "#awake" }))]] : [];
  });
  const marks = [["chosen move", svg("path", { class: "chosen", d: "M-.3 -.3L.35 0L-.3 .3L-.12 0Z" })]];
  if (players.some(({ steps }) => steps.some(({ best }) => best.length))) marks.push(["best move", svg("circle", { class: "best", r: 0.34 })]);
  marks.push(["legal move", svg("circle", { class: "legal", r: 0.12 })]);
  return [...drawn, ...marks].map(([name, shape]) => html("li", {}, picture(shape), name));
}

/** One player's place: board and status; actions, totals, reply and, if it is known, the prompt. */
function replayPanel({ player, title, system }, heading, index, count) {
  const whose = index ? `${player}, on the right` : player;
  const name = html(`h${heading}`, {}, title ?? player);
  if (title && title !== player) name.append(" ", html("small", {}, player));
  const scrolls = (what) => ({ tabindex: 0, role: "region", "aria-label": `${what} of ${whose}` });
  const board = html("div", { class: "replay-left" },
    name, html("div", { class: "replay-board" }), html("p", { class: "replay-status" }));
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

/** Fills a panel with one turn, or with the end if the episode is over; the last reply and its prompt then stay. */
function showTurn(panel, player, wanted, moves) {
  const { game, states, steps } = player;
  const turn = Math.min(wanted, steps.length);
  const step = steps[turn];
  const asked = step ?? steps[steps.length - 1];
  const board = drawBoard(game, player, turn, `Board of ${player.player}, turn ${turn + 1}`);
  panel.querySelector(".replay-board").replaceChildren(board);
  if (moves && wanted <= steps.length) glide(board, game, states[turn - 1], states[turn]);
  panel.classList.toggle("replay-over", !step);
  panel.querySelector(".replay-status").replaceWith(replayStatus(player, step));
  panel.querySelector(".replay-actions").replaceChildren(...replayActions(game, step));
  panel.querySelector(".replay-totals").replaceChildren(...replayTotals(steps, turn));
  const reply = panel.querySelector(".replay-reply");
  reply.textContent = asked ? asked.reply : "";
  reply.previousElementSibling.textContent = step ? "Reply" : "Last reply";
  const observation = panel.querySelector(".replay-observation");
  if (observation) observation.textContent = asked ? asked.prompt : "";
}

/**
 * The first turn, from 0, on which two players make moves that differ and are not equally good, or only one still plays; null
 * if there is none, or only one player.
 */
function firstDifference(a, b) {
  if (!b) return null;
  const moveOf = (step) => step.move ?? step.action; // `move`: the same number under all names of an action
  const good = (step) => step.best.includes(step.action);
  const differ = (one, other) => !other || (moveOf(one) !== moveOf(other) && !(good(one) && good(other)));
  const turn = a.steps.findIndex((step, index) => differ(step, b.steps[index]));
  return turn >= 0 ? turn : b.steps.length > a.steps.length ? a.steps.length : null;
}

/** The actions, each with what it is on this turn: illegal or best, chosen. A move against a wall can be best on slippery ice. */
function replayActions(game, step) {
  return game.actions.map((action, index) => {
    const best = step && step.best.includes(index) && step.best.length < game.actions.length;
    const kinds = step
      ? [
          !step.legal.includes(index) && !best && "illegal",
          best && "best",
          step.action === index && "chosen",
        ].filter(Boolean)
      : [];
    const words = kinds.join(", ") || (step ? "legal" : "");
    const item = html("li", { class: kinds.map((kind) => `is-${kind}`).join(" "), title: words }, action);
    item.append(html("span", { class: "unseen" }, words && ` (${words})`));
    return item;
  });
}

function replayStatus({ game, ending, ended, steps, waits }, step) {
  if (!step && waits) return html("p", { class: "replay-status" }, waits);
  if (!step) {
    const kind = ["success", "survived"].includes(ending) ? "good" : "bad";
    return html("p", { class: `replay-status ${kind}` }, `The end: ${ended}, reward ${signed(sum(steps.map(({ reward }) => reward)))}`);
  }
  const action = game.actions[step.action];
  const [kind, words] = {
    ok: judgement(game, step, action),
    illegal: againstAWall(game, step, action),
    unreadable: ["bad", "Unparsed: no action found in the reply"],
    truncated_reply: ["bad", "Truncated at the token limit"],
  }[step.status];
  return html("p", { class: `replay-status ${kind}` }, words);
}

/** How good an action was, if that is known. If all are best (nothing is left to win), none deserves praise. */
function judgement(game, step, action) {
  if (step.best.length === 0) return ["", action];
  if (step.best.length === game.actions.length) return ["", `${action}, as good as any`];
  if (step.best.includes(step.action)) return ["good", `${action}, best`];
  return ["caution", step.optimal.includes(step.action) ? `${action}, a detour with turns to spare` : `${action}, not the best`];
}

/** A move against a wall: wasted, unless slippery ice makes it the best way to slide aside. */
function againstAWall(game, step, action) {
  return step.best.includes(step.action) && step.best.length < game.actions.length ? ["good", `${action} against the wall, best: the ice may slide you aside`] : ["bad", `${action}, illegal`];
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
