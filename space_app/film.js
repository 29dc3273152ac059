/* The film: episodes of one seed, turn by turn, in the page alone. All that comes from data is set as text, never as markup. */

const SECOND = 900;

/** An HTML element with attributes and children, which may be text. */
function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
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

/** A film in an element of the page: `show(data)` begins another. */
function film(element) {
  let data = null;
  let turn = 0;
  let timer = null;
  const back = html("button", { type: "button", "aria-label": "One turn back" }, "◀");
  const play = html("button", { type: "button", class: "film-play" }, "Play");
  const forward = html("button", { type: "button", "aria-label": "One turn on" }, "▶");
  const apart = html("button", { type: "button", class: "film-apart" }, "First difference");
  const output = html("output", { class: "film-turn" });
  const slider = html("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Turn" });
  const mark = html("span", { class: "film-mark", "aria-hidden": "true" });
  const buttons = html("div", { class: "film-buttons" }, back, play, forward, apart, output);
  const controls = html("div", { class: "film-controls" }, buttons, html("div", { class: "film-track" }, slider, mark));
  const panels = html("div", { class: "film-panels" });
  const root = html("div", { class: "film", role: "group", "aria-label": "Replay" }, panels, controls);

  const last = () => Math.max(...data.players.map((player) => player.steps.length));

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function start() {
    if (turn === last()) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (!root.isConnected) return stop();
      go(turn + 1);
      if (turn === last()) stop();
    }, SECOND);
  }

  function step(turns) {
    stop();
    go(turn + turns);
  }

  function go(wanted) {
    const before = turn;
    turn = Math.min(Math.max(wanted, 0), last());
    const told = turn < last() ? `turn ${turn + 1} of ${last()}` : `the end, after ${last()} turn${last() === 1 ? "" : "s"}`;
    output.textContent = told;
    slider.value = turn;
    slider.setAttribute("aria-valuetext", told);
    back.disabled = turn === 0;
    forward.disabled = turn === last();
    for (const [index, player] of data.players.entries()) turnPanel(panels.children[index], player, turn, turn - before);
  }

  function turnPanel(panel, player, wanted, by) {
    const now = Math.min(wanted, player.steps.length);
    const given = player.steps[now];
    const board = drawBoard(player.game, player, now, `Board of ${player.player}, turn ${now + 1}`);
    panel.querySelector(".film-board").replaceChildren(board);
    panel.classList.toggle("film-over", !given);
    if (by === 1 && wanted <= player.steps.length) glide(board, player.game, player.states[now - 1], player.states[now]);
    panel.querySelector(".film-deeds").replaceChildren(...deeds(player.game, given));
    panel.querySelector(".film-status").replaceWith(status(player, given));
    panel.querySelector(".film-sums").replaceChildren(...sums(player, now));
    panel.querySelector(".film-reply").textContent = given ? given.reply : "";
    panel.querySelector(".film-seen").textContent = given ? given.prompt : "";
  }

  function panelOf(player, index) {
    const whose = index ? `${player.player}, on the right` : player.player;
    const scrolls = (what) => ({ tabindex: 0, role: "region", "aria-label": `${what} of ${whose}` });
    const seen = html("details", { class: "film-saw" }, html("summary", {}, "What it saw"));
    if (data.players.length === 1) seen.open = window.innerWidth > 700;
    seen.append(html("pre", { class: "film-system", ...scrolls("Constant part of the prompt") }, player.system));
    seen.append(html("pre", { class: "film-seen", ...scrolls("Observation") }));
    return html("article", { class: "film-panel", "aria-label": player.player },
      html("div", { class: "film-left" }, html("h2", {}, player.player), html("div", { class: "film-board" }), html("p", { class: "film-status" })),
      html("div", { class: "film-told" },
        html("ul", { class: "film-deeds", "aria-label": "Actions" }), html("div", { class: "film-sums" }),
        html("h3", {}, "What it answered"), html("pre", { class: "film-reply", ...scrolls("Reply") }), seen));
  }

  function show(given) {
    stop();
    if (!given || !given.players || !given.players.length) return root.remove();
    data = given;
    turn = 0;
    root.classList.toggle("film-two", data.players.length > 1);
    panels.replaceChildren(...data.players.map((player, index) => panelOf(player, index)));
    if (!element.contains(root)) element.replaceChildren(root);
    slider.max = last();
    const different = data.divergence;
    apart.hidden = mark.hidden = data.players.length < 2;
    apart.disabled = different === null;
    apart.textContent = different === null ? "No difference" : `First difference: turn ${different + 1}`;
    if (different === null) mark.hidden = true;
    else mark.style.left = `calc(8px + (100% - 16px) * ${different / last()})`;
    go(0);
  }

  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  play.addEventListener("click", () => (timer === null ? start() : stop()));
  back.addEventListener("click", () => step(-1));
  forward.addEventListener("click", () => step(1));
  apart.addEventListener("click", () => { stop(); go(data.divergence); });
  root.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turns || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    step(turns);
  });
  return { show };
}

const GLIDE = { duration: 260, easing: "ease-in-out" };

/** Who moves glides from the last state to this one; the board is as it will be already, and animations end on it. */
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

/** Moves an element from one cell to another, whatever its own transform is. */
function slide(element, from, to, columns) {
  const [[x, y], [u, v]] = [from, to].map((cell) => middle(cell, columns));
  const group = svg("g");
  element.replaceWith(group);
  group.append(element);
  group.animate([{ transform: `translate(${x - u}px, ${y - v}px)` }, { transform: "none" }], GLIDE);
}

/** A body is a dash that goes along the path of its head; a path of no length would not be drawn, hence the last .001. */
function creep(path, old, now, columns) {
  const way = [...old].reverse().concat(now[0]);
  const whole = path.cloneNode();
  whole.setAttribute("d", `M${way.map((cell) => middle(cell, columns).join(" ")).join("L")}h.001`);
  path.replaceWith(whole);
  const window = (body, tail) => ({ strokeDasharray: `${body.length - 1}px 999px`, strokeDashoffset: `${-tail}px` });
  const moving = whole.animate([window(old, 0), window(now, way.length - now.length)], GLIDE);
  moving.onfinish = () => whole.replaceWith(path);
}

/** The actions, each with what it is on this turn: legal, optimal, chosen. */
function deeds(game, step) {
  return game.actions.map((action, index) => {
    const kinds = step
      ? [
          !step.legal.includes(index) && ["not-legal", "not legal"],
          step.optimal.includes(index) && step.optimal.length < game.actions.length && ["is-optimal", "optimal"],
          step.action === index && ["is-chosen", "chosen"],
        ].filter(Boolean)
      : [];
    const words = kinds.map(([, word]) => word).join(", ") || (step ? "legal" : "");
    const item = html("li", { class: kinds.map(([kind]) => kind).join(" "), title: words }, action);
    item.append(html("span", { class: "unseen" }, words && ` (${words})`));
    return item;
  });
}

function status(player, step) {
  const { game } = player;
  if (!step) {
    const kind = ["success", "survived"].includes(player.ending) ? "good" : "bad";
    return html("p", { class: `film-status ${kind}` }, `The end: ${player.ending}, reward ${signed(player.reward)}`);
  }
  const action = game.actions[step.action];
  const [mood, judged] = judgement(game, step);
  const [kind, words] = {
    ok: [mood, action + judged],
    illegal: ["bad", `${action}, not legal`],
    unreadable: ["bad", "No action could be read"],
    truncated_reply: ["bad", "Cut at the token limit"],
  }[step.status];
  return html("p", { class: `film-status ${kind}` }, words);
}

/** How good an action was, where that is known. Where all are optimal (nothing left to win, say), none deserves praise. */
function judgement(game, step) {
  if (step.optimal.length === 0) return ["", ""];
  if (step.optimal.length === game.actions.length) return ["", ", as good as any"];
  return step.optimal.includes(step.action) ? ["good", ", optimal"] : ["caution", ", not optimal"];
}

/** Reward and regret: what the turns before gave, and what this one gives. */
function sums(player, now) {
  return [["reward", signed], ["regret", plain]].flatMap(([name, shown]) => {
    const values = player.steps.map((step) => step[name]);
    if (!values.length || values.includes(null)) return [];
    const before = values.slice(0, now).reduce((sum, value) => sum + value, 0);
    const line = html("p", {}, `${name} `, html("b", {}, shown(before)), " so far");
    if (now < values.length) line.append(", ", html("b", {}, shown(values[now])), " now");
    return [line];
  });
}

/** Ties a film to a component of the page, whose value is the film's data as JSON. */
function mount(element, props, watch) {
  const stage = film(element);
  const load = () => stage.show(props.value ? JSON.parse(props.value) : null);
  watch("value", load);
  load();
}
