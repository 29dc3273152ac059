"use strict";
/* Boards as SVG: one state of a game, from the cells of its pieces. Units are cells. */

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children. */
function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The middle of a cell, as [x, y]. */
function middle(cell, columns) {
  return [(cell % columns) + 0.5, Math.floor(cell / columns) + 0.5];
}

/** The board of an episode on one turn, with marks for the action chosen on that turn. */
function drawBoard(task, episode, turn, label) {
  const state = episode.states[turn];
  const parts = [ground(task), pieces(task, state)];
  if (state.bodies) parts.push(...state.bodies.map((_, who) => snake(task, episode, turn, who)).reverse());
  if (state.walker !== undefined) parts.push(walker(task, state));
  if (episode.steps[turn]) parts.push(moves(task, state, episode.steps[turn]));
  const room = 0.25 * markScale(task); // a mark may stand half outside
  const box = `${-room} ${-room} ${task.columns + 2 * room} ${task.rows + 2 * room}`;
  return svg("svg", { viewBox: box, class: "board", role: "img", "aria-label": label }, ...parts);
}

/** How much larger marks are on a board of many cells, where they would be too small to see. */
function markScale(task) {
  return Math.max(1, Math.max(task.rows, task.columns) / 6);
}

function ground(task) {
  const { rows, columns } = task;
  const cells = [...Array(rows * columns).keys()].map((cell) => [cell % columns, Math.floor(cell / columns)]);
  if (task.icy) {
    const tile = { class: "ice", width: 0.92, height: 0.92, rx: 0.14 };
    return svg("g", {}, ...cells.map(([x, y]) => svg("rect", { ...tile, x: x + 0.04, y: y + 0.04 })));
  }
  const dark = cells.filter(([x, y]) => (x + y) % 2).map(([x, y]) => `M${x} ${y}h1v1h-1z`).join("");
  return svg("g", {}, svg("rect", { class: "field", width: columns, height: rows }), svg("path", { class: "check", d: dark }));
}

function pieces(task, state) {
  const drawn = svg("g");
  for (const [symbol, cells] of Object.entries(state.pieces)) {
    for (const cell of cells) {
      const [x, y] = middle(cell, task.columns);
      drawn.append(symbol in task.pieces ? svg("use", { href: `#${task.pieces[symbol]}`, x, y }) : letter(symbol, x, y));
    }
  }
  return drawn;
}

/** A symbol that the game gives no name. */
function letter(symbol, x, y) {
  const text = svg("text", { class: "letter", y: 0.2 });
  text.textContent = symbol;
  const tile = svg("rect", { class: "tile", x: -0.4, y: -0.4, width: 0.8, height: 0.8, rx: 0.16 });
  return svg("g", { transform: `translate(${x} ${y})` }, tile, text);
}

/** A single player: it sinks in a hole, and stands beside the flag at the goal. */
function walker(task, state) {
  const [x, y] = middle(state.walker, task.columns);
  const posture = { "": "", goal: "translate(-.14 0) scale(.9)", hole: "scale(.55)" }[state.posture];
  return svg("use", { href: "#walker", transform: `translate(${x} ${y}) ${posture}` });
}

function snake(task, episode, turn, who) {
  const { bodies, alive } = episode.states[turn];
  const name = ["you", "opponent"][who];
  const line = bodies[who].map((cell) => middle(cell, task.columns).join(" ")).join("L");
  const [x, y] = middle(bodies[who][0], task.columns);
  const head = svg("g", { transform: `translate(${x} ${y}) rotate(${facing(task, episode, turn, who)})` });
  head.append(svg("circle", { class: `head ${name}`, r: 0.43 }), svg("use", { href: alive[who] ? "#awake" : "#dead" }));
  const body = ["body", "belly"].map((part) => svg("path", { class: `${part} ${name}`, d: `M${line}h.001` }));
  return svg("g", {}, ...body, head);
}

/** The angle of a head: it faces its last move, and a dead head faces what it hit. */
function facing(task, episode, turn, who) {
  const step = episode.steps[turn - 1];
  if (who === 0 && step && step.action !== null && !episode.states[turn].alive[0]) return angle(direction(task, step.action));
  for (let t = turn; t > 0; t -= 1) {
    const [before, after] = [t - 1, t].map((u) => middle(episode.states[u].bodies[who][0], task.columns));
    if (before[0] !== after[0] || before[1] !== after[1]) return angle([after[0] - before[0], after[1] - before[1]]);
  }
  return 0;
}

function angle([x, y]) {
  return (Math.atan2(y, x) * 180) / Math.PI;
}

/** The direction of an action on this board, as [x, y]; null if it is unknown. */
function direction(task, action) {
  const way = task.moves[task.actions[action]];
  return way ? [way[1], way[0]] : null;
}

/** The legal, the best and the chosen moves, around the player. */
function moves(task, state, step) {
  const marks = svg("g");
  const at = state.bodies ? state.bodies[0][0] : state.walker;
  if (at === undefined) return marks;
  const [x, y] = middle(at, task.columns);
  const big = markScale(task);
  const edge = (action) => {
    const way = direction(task, action);
    return way && { cx: x + way[0] / 2, cy: y + way[1] / 2, way };
  };
  const best = step.best.length < task.actions.length ? step.best : []; // all: none is better
  for (const [name, actions, r] of [["legal", step.legal, 0.06], ["best", best, 0.19]]) {
    for (const action of actions) {
      const place = edge(action);
      if (place) marks.append(svg("circle", { class: name, cx: place.cx, cy: place.cy, r: r * big }));
    }
  }
  const chosen = step.action === null ? null : edge(step.action);
  if (chosen) {
    const turned = `translate(${chosen.cx} ${chosen.cy}) rotate(${angle(chosen.way)}) scale(${0.45 * big})`;
    const kind = step.status === "illegal" && !best.includes(step.action) ? "chosen illegal" : "chosen";
    marks.append(svg("path", { class: kind, d: "M-.3 -.3L.35 0L-.3 .3L-.12 0Z", transform: turned }));
  }
  return marks;
}
