/* The replay: two players on one seed, turn by turn. All that comes from the data is set as text, never as markup. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const SECOND = 1000;
const byId = (id) => document.getElementById(id);
const [slider, play, mark] = ["slider", "play", "mark"].map(byId);
const chosen = { task: 0, seed: 0, a: 0, b: 0 };
let timer = null;

const task = () => DATA.tasks[chosen.task];
const seed = () => task().seeds[chosen.seed];
const episodeOf = (side) => seed().episodes[chosen[side]];

/** An HTML element with a class and children, which may be text. */
function html(name, kind, ...children) {
  const element = document.createElement(name);
  element.className = kind;
  element.append(...children);
  return element;
}

function plain(value) {
  const shown = Number.isInteger(value) ? String(Math.abs(value)) : Math.abs(value).toFixed(3);
  return Number(shown) === 0 ? "0" : shown;
}

function signed(value) {
  const shown = plain(value);
  return shown === "0" ? shown : (value < 0 ? "−" : "+") + shown;
}

// ---- choosing

function fill(id, options, value) {
  const select = byId(id);
  select.replaceChildren(...options.map(([key, text]) => Object.assign(html("option", "", text), { value: key })));
  select.value = String(value);
}

/** The tasks of which an episode can be replayed. */
function playable() {
  return DATA.tasks.filter((each) => each.seeds.length);
}

/** A task's name; with its episodes where two have the same name. */
function titleOf(shown) {
  const twice = DATA.tasks.filter((each) => each.title === shown.title).length > 1;
  return twice ? `${shown.title}, ${shown.episodes}` : shown.title;
}

/** Shows a seed of a task; the players stay where they have played it. */
function choose(changes) {
  Object.assign(chosen, changes);
  if ("task" in changes && !("seed" in changes)) chosen.seed = 0;
  const here = Object.keys(seed().episodes).map(Number);
  if (!here.includes(chosen.a)) chosen.a = here[0];
  const others = here.filter((player) => player !== chosen.a);
  if (chosen.b !== null && !here.includes(chosen.b)) chosen.b = others.length ? others[0] : null;
  const players = here.map((player) => [player, DATA.players[player]]);
  fill("choose-task", playable().map((each) => [DATA.tasks.indexOf(each), titleOf(each)]), chosen.task);
  fill("choose-seed", task().seeds.map((each, index) => [index, each.label]), chosen.seed);
  fill("choose-a", players, chosen.a);
  fill("choose-b", [...players, ["", "nobody"]], chosen.b ?? "");
  const symbols = task().symbols.map(([symbol, name]) => `${symbol} ${name}`).join(", ");
  byId("symbols").textContent = `In the grid that players read: ${symbols}.`;
  slider.max = Math.max(...sides().map((side) => episodeOf(side).steps.length));
  const different = firstDifference();
  byId("divergence").disabled = different === null;
  byId("divergence").textContent = different === null ? "No difference" : `First difference: turn ${different + 1}`;
  mark.hidden = different === null;
  if (different !== null) mark.style.left = `calc(8px + (100% - 16px) * ${different / slider.max})`;
  go(0);
}

const sides = () => (chosen.b === null ? ["a"] : ["a", "b"]);

/** The first turn on which two players do not do the same; null where they never differ. */
function firstDifference() {
  if (chosen.b === null) return null;
  const [a, b] = ["a", "b"].map((side) => episodeOf(side).steps);
  const turn = [...a.keys()].find((t) => !b[t] || a[t].action !== b[t].action);
  return turn ?? (b.length > a.length ? a.length : null);
}

// ---- showing

function go(turn) {
  slider.value = Math.min(Math.max(turn, 0), Number(slider.max));
  show();
}

function show() {
  const turn = Number(slider.value);
  const last = Number(slider.max);
  for (const side of ["a", "b"]) {
    byId(`panel-${side}`).replaceChildren(...(sides().includes(side) ? panel(side, turn) : []));
  }
  const text = turn < last ? `turn ${turn + 1} of ${last}` : `the end, after ${last} turn${last === 1 ? "" : "s"}`;
  byId("turn").textContent = text;
  slider.setAttribute("aria-valuetext", text);
  byId("back").disabled = turn === 0;
  byId("forward").disabled = turn === last;
}

/** One player: board, what may be done, what was done, sums, reply. */
function panel(side, turn) {
  const episode = episodeOf(side);
  const now = Math.min(turn, episode.steps.length);
  const step = episode.steps[now];
  const name = DATA.players[chosen[side]];
  const board = drawBoard(task(), episode, now, `Board of ${name}, turn ${now + 1}`);
  const reply = html("pre", "reply", step ? step.reply : "");
  reply.tabIndex = 0;
  reply.setAttribute("aria-label", "Reply");
  return [html("h3", "", name), board, deeds(step), status(episode, step), sums(episode, now), reply];
}

/** The actions, each with what it is on this turn: legal, optimal, chosen. */
function deeds(step) {
  const list = html("ul", "deeds");
  for (const [index, action] of task().actions.entries()) {
    const kinds = step
      ? [
          !step.legal.includes(index) && ["not-legal", "not legal"],
          step.optimal.includes(index) && step.optimal.length < task().actions.length && ["is-optimal", "optimal"],
          step.action === index && ["is-chosen", "chosen"],
        ].filter(Boolean)
      : [];
    const item = html("li", kinds.map(([kind]) => kind).join(" "), action);
    item.title = kinds.map(([, words]) => words).join(", ") || (step ? "legal" : "");
    list.append(item);
  }
  return list;
}

function status(episode, step) {
  if (!step) {
    const kind = ["success", "survived"].includes(episode.ending) ? "good" : "bad";
    return html("p", `status ${kind}`, `The end: ${episode.ending}`);
  }
  const action = task().actions[step.action];
  const [mood, judged] = judgement(step);
  const [kind, words] = {
    ok: [mood, action + judged],
    illegal: ["bad", `${action}, not legal`],
    unreadable: ["bad", "No action could be read"],
    truncated_reply: ["bad", "Cut at the token limit"],
  }[step.status];
  return html("p", `status ${kind}`, words);
}

/** How good an action was, where that is known. Where all are optimal (nothing left to win, say), none deserves praise. */
function judgement(step) {
  if (step.optimal.length === 0) return ["", ""];
  if (step.optimal.length === task().actions.length) return ["", ", as good as any"];
  return step.optimal.includes(step.action) ? ["good", ", optimal"] : ["caution", ", not optimal"];
}

/** Reward and regret: what the turns before gave, and what this one gives. */
function sums(episode, now) {
  const lines = html("div", "sums");
  for (const [name, shown] of [["reward", signed], ["regret", plain]]) {
    const values = episode.steps.map((step) => step[name]);
    if (values.includes(null)) continue;
    const before = values.slice(0, now).reduce((sum, value) => sum + value, 0);
    const line = html("p", "", `${name} `, html("b", "", shown(before)), " so far");
    if (now < values.length) line.append(", ", html("b", "", shown(values[now])), " now");
    lines.append(line);
  }
  return lines;
}

// ---- moving

function stop() {
  clearInterval(timer);
  timer = null;
  play.textContent = "Play";
}

function start() {
  if (slider.value === slider.max) go(0);
  play.textContent = "Pause";
  timer = setInterval(() => {
    go(Number(slider.value) + 1);
    if (slider.value === slider.max) stop();
  }, SECOND);
}

function step(turns) {
  stop();
  go(Number(slider.value) + turns);
}

/** Arrow keys step, wherever the focus is on the replay; in a list of choices they keep their meaning. */
function key(event) {
  const turns = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const { target } = event;
  const elsewhere = target !== document.body && !byId("replay").contains(target);
  if (!turns || elsewhere || event.altKey || event.ctrlKey || event.metaKey || target.matches("select")) return;
  event.preventDefault();
  step(turns);
}

/** Opens the replay on an episode of a table above. */
function open(button) {
  const { task: index, seed: wanted, player } = button.dataset;
  stop();
  const found = DATA.tasks[index].seeds.findIndex((each) => each.seed === wanted);
  const shown = DATA.players.indexOf(player);
  const b = chosen.b === shown ? chosen.a : chosen.b;
  choose({ task: Number(index), seed: found, a: shown, b });
  byId("replay").scrollIntoView();
  byId("replay-title").focus({ preventScroll: true });
}

function begin() {
  const wanted = { task: "choose-task", seed: "choose-seed", a: "choose-a", b: "choose-b" };
  for (const [what, id] of Object.entries(wanted)) {
    byId(id).addEventListener("change", ({ target }) => {
      stop();
      choose({ [what]: target.value === "" ? null : Number(target.value) });
    });
  }
  for (const button of document.querySelectorAll(".show")) {
    button.disabled = !DATA.tasks[button.dataset.task].seeds.some((each) => each.seed === button.dataset.seed);
    button.addEventListener("click", () => open(button));
  }
  slider.addEventListener("input", () => { stop(); show(); });
  play.addEventListener("click", () => (timer === null ? start() : stop()));
  byId("back").addEventListener("click", () => step(-1));
  byId("forward").addEventListener("click", () => step(1));
  byId("divergence").addEventListener("click", () => { stop(); go(firstDifference()); });
  document.addEventListener("keydown", key);
  byId("replay").hidden = false;
  chosen.task = DATA.tasks.indexOf(playable()[0]);
  choose(task().pair);
}

byId("no-replay").hidden = true;
if (playable().length) begin();
