/* The parts of the page that have a script: replays, addresses, errors, and tables that sort. game.js has the board to play on. */

/** Name of a stage → its element, the values that it was made with, and those of its inputs since they were changed. */
const stages = new Map();

const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A replay, whose data is the component's value as JSON. The one that the page opens with plays by itself. */
function mountReplay(element, props, watch, name) {
  const caption = html("p", { class: "caption" });
  const place = html("div");
  let loads = 0;
  const player = replayPlayer(place, { onTurn: (turn) => name === "watch-stage" && loads > 1 && wanted.tell({ turn: turn + 1 }) });
  const load = () => {
    const data = props.value ? JSON.parse(props.value) : null;
    loads += 1;
    if (!element.contains(place)) element.replaceChildren(caption, place);
    const turn = loads > 1 ? wanted.takeTurn() : 0;
    player.show(data, turn);
    if (loads === 1 && data && data.players.some((each) => each.waits)) setTimeout(() => buttonOf(element, "Watch").click(), 500);
    caption.hidden = !data;
    if (!data) return;
    const [title, id] = data.caption;
    caption.replaceChildren(title, " ", html("small", {}, id));
    remember(name, element, data.asked);
    if (name !== "watch-stage") return;
    if (loads > 1) wanted.tell({ ...Object.fromEntries(LINKED.map((key, index) => [key, data.asked[index]])), turn: turn ? turn + 1 : null });
    if (!calm() && !turn && !data.grows && !data.players.some((each) => each.waits)) player.begin(loads === 1);
  };
  watch("value", load);
  load();
}

/** Remembers what a stage was made with: the inputs may have changed since. */
function remember(name, element, asked) {
  stages.set(name, { ...stages.get(name), element, asked: asked.map(String) });
  grey(name);
}

/** Notes the values of the inputs of a stage. */
function changed(name, given) {
  stages.set(name, { ...stages.get(name), given });
  grey(name);
}

/** Greys a stage while the inputs are others than those it was made with. */
function grey(name) {
  const { element, asked, given } = stages.get(name);
  if (element) element.classList.toggle("stale", Boolean(given) && asked.some((value, index) => value !== String(given[index] ?? "")));
}

// ---- addresses

/** What an address says of the Watch tab, in the order of its inputs. */
const LINKED = ["game", "board", "player", "beside"];

/** The replay that an address asks for, and the address of the one that is shown. */
const wanted = {
  params: new URLSearchParams(),
  ask(search) {
    this.params = new URLSearchParams(search);
  },
  /** The values of the inputs, those that the address leaves out as they are. */
  inputs(given) {
    return given.map((value, index) => {
      const asked = this.params.get(LINKED[index]);
      return asked === null ? (index === 3 ? "" : value) : index === 1 ? Number(asked) : asked;
    });
  },
  /** The index of the turn, which the address counts from 1 as the page does. */
  takeTurn() {
    const turn = Number(this.params.get("turn")) || 1;
    this.params.delete("turn");
    return Math.max(0, Math.trunc(turn) - 1);
  },
  /** Writes values into the address; null takes one out. */
  tell(values) {
    const params = new URLSearchParams(location.search);
    params.delete("tab");
    for (const [key, value] of Object.entries(values)) value === null ? params.delete(key) : params.set(key, value);
    history.replaceState(null, "", `?${params}`);
  },
};

function openTab(name) {
  const tab = [...document.querySelectorAll("button[role=tab]")].find((each) => each.textContent.trim() === name);
  if (tab) tab.click();
}

/** Links to replays, which open without loading the page anew; and what the page's own address asks for. */
function mountExamples(open) {
  const follow = (search) => {
    const params = new URLSearchParams(search);
    if (!["Watch", null].includes(params.get("tab"))) return openTab(params.get("tab"));
    openTab("Watch");
    wanted.ask(search);
    open();
  };
  document.addEventListener("click", (event) => {
    const anchor = event.target.closest("a[href^='?']");
    if (!anchor || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    follow(anchor.getAttribute("href"));
  });
  const params = new URLSearchParams(location.search);
  document.body.classList.toggle("embed", params.get("view") === "embed");
  if (params.has("tab") || LINKED.some((key) => params.has(key))) requestAnimationFrame(() => follow(location.search));
}

/** Values with another board. */
function rolled(given) {
  return given.map((value, index) => (index === 1 ? Math.floor(Math.random() * 10000) : value));
}

/** The input with a label. */
function inputOf(panel, label) {
  const text = (each) => each.getAttribute("aria-label") ?? [...(each.labels ?? [])].map((own) => own.textContent.trim())[0];
  return [...panel.querySelectorAll("input, textarea")].find((each) => text(each) === label) ?? null;
}

/** The button with a name in the tab of an element. */
function buttonOf(element, name) {
  return [...element.closest("[role=tabpanel]").querySelectorAll("button")].find((each) => each.textContent.trim() === name);
}

const STOPPED = "Stopped after ";

/** Marks a tab as busy, which its button is disabled for, or as done; when it was stopped, its progress says so. */
function running(element, yes) {
  const panel = document.getElementById(element).closest("[role=tabpanel]");
  panel.querySelector("button.primary").disabled = yes;
  panel.classList.toggle("running", yes);
  const count = [...panel.querySelectorAll(".progress + .count")].at(-1);
  const said = count.textContent.replace(STOPPED, "");
  count.textContent = panel.classList.contains("stopping") ? STOPPED + said : said;
  panel.classList.remove("stopping");
}

/** Marks a busy tab as one that is being stopped. */
function stopping(element) {
  document.getElementById(element).closest("[role=tabpanel]").classList.add("stopping");
}

/** A table that sorts by the column whose heading is clicked; a second click reverses the order. */
function mountTable(element) {
  element.addEventListener("click", (event) => {
    const button = event.target.closest("th button");
    if (!button) return;
    const head = button.parentElement;
    const column = head.cellIndex;
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending" && (column > 2 || head.getAttribute("aria-sort") === "ascending");
    for (const each of head.parentElement.cells) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const by = [a, b].every(isFinite) ? a - b : a.localeCompare(b);
      return down ? -by : by;
    };
    const rows = [...body.rows].sort((a, b) => order(key(a), key(b)));
    body.append(...rows);
  });
}
