/* The parts of the page that have a script: replays, a table that sorts, and a board to play on. */

/** A replay, whose data is the component's value as JSON. */
function mountReplay(element, props, watch) {
  const player = replayPlayer(element);
  const load = () => player.show(props.value ? JSON.parse(props.value) : null);
  watch("value", load);
  load();
}

/** A table that sorts by the column whose heading is clicked; a second click reverses the order. */
function mountTable(element) {
  element.addEventListener("click", (event) => {
    const button = event.target.closest("th button");
    if (!button) return;
    const head = button.parentElement;
    const column = head.cellIndex;
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending" && (column > 1 || head.getAttribute("aria-sort") === "ascending");
    for (const each of head.parentElement.cells) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const by = column > 1 ? Number(a) - Number(b) : a.localeCompare(b);
      return down ? -by : by;
    };
    const rows = [...body.rows].sort((a, b) => order(key(a), key(b)));
    body.append(...rows);
  });
}

const ARROWS = { ArrowLeft: 0, ArrowDown: 1, ArrowRight: 2, ArrowUp: 3 };

/** A board to play on. Only the visitor's page keeps the moves so far. */
function mountGame(element, props, server, watch) {
  let shown = null;
  let waiting = [];
  let busy = false;
  let opponent = "";
  const board = html("div", { class: "replay-board" });
  const pad = html("div", { class: "pad", role: "group", "aria-label": "Moves" });
  const status = html("p", { class: "replay-status", role: "status", "aria-live": "polite" });
  const results = html("div", { class: "results" });
  const stage = html("div", { class: "stage" });
  const rules = html("pre", { tabindex: 0, role: "region", "aria-label": "What a model is told" });
  const prompt = html("details", { class: "replay-prompt" }, html("summary", {}, "What a model is told"), rules);
  const left = html("div", { class: "replay-left" }, board, status, pad);
  const right = html("div", { class: "replay-text" }, results, prompt);
  const root = html("div", { class: "replay yours", tabindex: 0, role: "group", "aria-label": "Your game: arrow keys move" },
    html("div", { class: "replay-panel" }, left, right), stage);
  const agent = replayPlayer(stage);

  function draw() {
    const turn = shown.states.length - 1;
    board.replaceChildren(drawBoard(shown.game, shown, turn, `Your board, turn ${turn + 1}`));
    if (turn > 0) glide(board.firstChild, shown.game, shown.states[turn - 1], shown.states[turn]);
    const end = shown.success ? "Success" : "The end";
    status.textContent = shown.over
      ? `${end}: reward ${signed(shown.reward)}`
      : `Turn ${turn + 1} of ${turn + shown.turns_left}, reward ${signed(shown.reward)}`;
    rules.textContent = shown.rules;
    for (const button of pad.children) button.disabled = shown.over;
  }

  function begin(given) {
    shown = given;
    waiting = [];
    results.replaceChildren();
    stage.replaceChildren();
    if (!shown) return root.remove();
    opponent = shown.player;
    pad.replaceChildren(...shown.game.actions.map((action, index) => {
      const way = direction(shown.game, index);
      const arrow = way ? ["←", "↓", "→", "↑"][[way[0] < 0, way[1] > 0, way[0] > 0, way[1] < 0].indexOf(true)] : "";
      const button = html("button", { type: "button", "data-way": arrow }, `${arrow} ${action}`.trim());
      button.addEventListener("click", () => move(action));
      return button;
    }));
    if (!element.contains(root)) element.replaceChildren(root);
    draw();
  }

  /** Plays the moves one after the other, in the order of the keys. */
  async function move(action) {
    if (!shown || shown.over || waiting.length > 5) return;
    waiting.push(action);
    if (busy) return;
    busy = true;
    while (waiting.length && !shown.over) {
      const asked = { game: shown.game.title, seed: shown.number, actions: shown.actions, action: waiting.shift() };
      const before = shown;
      const after = await server.step(asked).catch(() => ({ error: "The Space did not answer: try again." }));
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
    const asked = { game: shown.game.title, seed: shown.number, player: opponent };
    const found = await server.result(asked).catch(() => ({ error: "The Space did not answer: try again." }));
    if (shown !== mine) return;
    if (found.error) return results.replaceChildren(html("p", { class: "bad" }, found.error));
    const rows = [["you", mine.reward, mine.steps.length, mine.success], ...["agent", "best"].map((role) => {
      const { player, reward, turns, success } = found[role];
      return [player, reward, turns, success];
    })];
    const body = html("tbody", {}, ...rows.map(([name, reward, turns, success]) =>
      html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, signed(reward)), html("td", {}, String(turns)), html("td", {}, success ? "yes" : "no"))));
    const heads = ["Player", "Reward", "Turns", "Success"].map((name) => html("th", { scope: "col" }, name));
    results.replaceChildren(html("table", { class: "scores" }, html("thead", {}, html("tr", {}, ...heads)), body));
    const value = found.best.value_optimal;
    if (value !== null) results.append(html("p", { class: "count" }, `Optimal play gets ${value.toFixed(3)} on this board on average.`));
    stage.replaceChildren();
    agent.show(found.film);
  }

  /** Arrow keys move if the focus is on the game, or on something that has no use for them. */
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    const idle = target === document.body || target.getAttribute("role") === "tab";
    const mine = root.contains(target) && !stage.contains(target);
    if (!(event.key in ARROWS) || !root.offsetParent || !(mine || idle)) return;
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const arrow = ["←", "↓", "→", "↑"][ARROWS[event.key]];
    const button = [...pad.children].find((each) => each.dataset.way === arrow);
    if (button) button.click();
  });
  const load = () => begin(props.value ? JSON.parse(props.value) : null);
  watch("value", () => { load(); root.focus({ preventScroll: true }); });
  load();
}
