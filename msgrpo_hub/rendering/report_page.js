/* The report's replay: which task, episode and players the replay player shows. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const chosen = { task: 0, seed: 0, a: 0, b: 0 };
const replay = byId("replay");
const player = replayPlayer(byId("stage"), {
  heading: 3,
  // Arrow keys step if the focus is in the replay or nowhere; in a list of choices they keep their meaning.
  takesKey: (target) => target === document.body || (replay.contains(target) && !target.matches("select")),
});

const task = () => DATA.tasks[chosen.task];
const seed = () => task().seeds[chosen.seed];
const sides = () => (chosen.b === null ? ["a"] : ["a", "b"]);
const episodeOf = (side) => seed().episodes[chosen[side]];

function fill(id, options, value) {
  const select = byId(id);
  select.replaceChildren(...options.map(([key, text]) => html("option", { value: key }, text)));
  select.value = String(value);
}

/** The tasks that have an episode to replay. */
function playable() {
  return DATA.tasks.filter((each) => each.seeds.length);
}

/** Shows a seed of a task. The players stay if they have played it. */
function choose(changes) {
  Object.assign(chosen, changes);
  if ("task" in changes && !("seed" in changes)) chosen.seed = 0;
  const here = Object.keys(seed().episodes).map(Number);
  if (!here.includes(chosen.a)) chosen.a = here[0];
  const others = here.filter((each) => each !== chosen.a);
  if (chosen.b !== null && !here.includes(chosen.b)) chosen.b = others.length ? others[0] : null;
  const players = here.map((each) => [each, DATA.players[each]]);
  fill("choose-task", playable().map((each) => [DATA.tasks.indexOf(each), each.title]), chosen.task);
  fill("choose-seed", task().seeds.map((each, index) => [index, each.label]), chosen.seed);
  fill("choose-a", players, chosen.a);
  fill("choose-b", [...players, ["", "nobody"]], chosen.b ?? "");
  const symbols = task().symbols.map(([symbol, name]) => `${symbol} ${name}`).join(", ");
  byId("symbols").textContent = `Symbols of the grid in the prompts: ${symbols}.`;
  player.show({ players: sides().map((side) => ({ player: DATA.players[chosen[side]], game: task(), ...episodeOf(side) })) });
}

/** Shows an episode of a table above. */
function openEpisode({ task: index, seed: wanted, player: name }) {
  const a = DATA.players.indexOf(name);
  const b = chosen.b === a ? chosen.a : chosen.b;
  choose({ task: Number(index), seed: DATA.tasks[index].seeds.findIndex((each) => each.seed === wanted), a, b });
  replay.scrollIntoView();
  byId("replay-title").focus({ preventScroll: true });
}

function begin() {
  for (const what of ["task", "seed", "a", "b"]) {
    byId(`choose-${what}`).addEventListener("change", ({ target }) => {
      choose({ [what]: target.value === "" ? null : Number(target.value) });
    });
  }
  for (const button of document.querySelectorAll(".show")) {
    button.disabled = !DATA.tasks[button.dataset.task].seeds.some((each) => each.seed === button.dataset.seed);
    button.addEventListener("click", () => openEpisode(button.dataset));
  }
  replay.hidden = false;
  chosen.task = DATA.tasks.indexOf(playable()[0]);
  choose(task().pair);
}

/** Labels cells with the headings of their columns, for phones, whose rows are cards; roles keep what the table says aloud. */
function label(table) {
  const heads = table.tHead ? [...table.tHead.rows[0].cells].map((each) => each.textContent) : [];
  table.parentElement.classList.add("labelled");
  table.setAttribute("role", "table");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    const missing = heads.length - row.cells.length; // a name that spans rows
    for (const cell of row.cells) {
      if (cell.tagName === "TD") cell.setAttribute("role", "cell");
      else cell.setAttribute("role", cell.closest("thead") ? "columnheader" : "rowheader");
      const head = heads[cell.cellIndex + missing];
      if (cell.tagName === "TD" && head) cell.dataset.label = head;
      if (cell.tagName === "TD" && head) cell.replaceChildren(html("span", {}, ...cell.childNodes));
    }
  }
}

document.querySelectorAll(".scroll table").forEach(label);
byId("no-replay").hidden = true;
if (playable().length) begin();
