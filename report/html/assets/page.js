// The whole: verdict, selection, search, keys, colours.

function select(id, bring) {
  const before = selected;
  selected = id;
  const node = id === null ? null : nodes[id];
  const hadStory = !story.hidden;
  tell(node);
  if (before !== selected || !node) recolour();
  if (node && (bring || !hadStory)) show(node);
  if (table) bringRow(node && node.step ? node.index : null);
  // inside of another page, as in a notebook, there is no address to write to
  if (/^(file|https?):$/.test(location.protocol)) history.replaceState(null, '', node && node.step ? `#step-${node.index}` : '#');
}

// -- verdict -----------------------------------------------------------------

function tile(label, value, part, kind, note) {
  const box = make('div', 'tile', make('span', 'label', label), make('b', '', value));
  if (part !== null) {
    const meter = make('div', 'meter');
    const fill = make('i', `k-${kind}`);
    fill.style.width = `${Math.round(100 * part)}%`;
    meter.append(fill);
    box.append(meter);
  }
  box.append(make('span', 'note', note));
  return box;
}

function fillVerdict() {
  const { verdict } = data;
  byId('name').textContent = data.title;
  byId('subtitle').textContent = `${data.done} for ${data.target} · ${thousands(data.steps.length)} steps · ${thousands(verdict.quantizers)} quantizers`;
  byId('answer').textContent = verdict.answer;
  const [int8, macs] = verdict.macs;
  const [f32, between] = verdict.between;
  const sizes = verdict.open.length ? `; sizes guessed: ${cut(verdict.open.join(', '), 60)}` : '';
  const loops = verdict.loops.length ? `; loops counted as one trip: ${cut(verdict.loops.join(', '), 60)}` : '';
  byId('tiles').append(
    tile('multiply-adds in int8', macs ? share(int8, macs) : 'none', macs ? int8 / macs : null, 'int8', macs ? `of ${large(macs)}` : 'no products'),
    tile('bytes between steps in f32', share(f32, between), between ? f32 / between : 0, 'f32', `of ${bytes(between)}`),
    verdict.timed
      ? tile('estimated time', milliseconds(verdict.ms), null, '', `at the peak rates of ${verdict.machine}; not measured${sizes}${loops}`)
      : tile('estimated time', 'not known', null, '', `it depends on sizes that the model leaves open${sizes}${loops}`),
  );
  const measured = data.steps.filter((step) => step.time !== undefined);
  if (measured.length) {
    byId('tiles').append(tile('measured time', milliseconds(measured.reduce((sum, step) => sum + step.time, 0)), null, '', `of ${thousands(measured.length)} steps`));
  }
}

function fillLegend() {
  const entries = colour === 'error'
    ? [['e0', 'under 10 dB'], ['e1', '10 to 20'], ['e2', '20 to 30'], ['e3', 'from 30 on']]
    : Object.entries(WORDS).filter(([kind]) => kind !== 'end' && nodes.some((node) => node.category === kind));
  byId('legend').replaceChildren(...entries.map(([kind, label]) => make('span', '', make('i', `dot k-${kind}`), label)));
  byId('legend').append(make('span', '', make('i', 'line v-codes'), 'codes'), make('span', '', make('i', 'line v-floats'), 'floats'));
}

// -- search ------------------------------------------------------------------

let hits = [];
let hit = -1;

function search(text_) {
  words = text_.trim();
  hits = words ? matching(words) : [];
  matches = words ? new Set(hits.map((node) => node.id)) : null;
  hit = -1;
  byId('hits').textContent = words ? `${thousands(hits.length)} found` : '';
  if (words && tab === 'Findings') openTab('Steps');
  filterTable();
  recolour();
  if (hits.length) show(hits[0]);
}

function nextHit(step) {
  if (!hits.length) return;
  hit = (hit + step + hits.length) % hits.length;
  byId('hits').textContent = `${hit + 1} of ${thousands(hits.length)}`;
  select(hits[hit].id, true);
}

byId('search').addEventListener('input', (event) => search(event.target.value));
byId('search').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') nextHit(event.shiftKey ? -1 : 1);
  if (event.key === 'Escape') {
    event.target.value = '';
    search('');
    canvas.focus();
  }
});

// -- keys --------------------------------------------------------------------

// The next node in a direction: along edges up and down, within the rank to the sides.
function neighbour(node, key) {
  const rank = place.ranks[node.rank];
  const nearest = (list) => [...list].sort((a, b) => Math.abs(a.rank - node.rank) - Math.abs(b.rank - node.rank) || Math.abs(a.x - node.x) - Math.abs(b.x - node.x))[0];
  if (key === 'ArrowDown') return nearest(node.outof.map((edge) => edge.target));
  if (key === 'ArrowUp') return nearest(node.into.map((edge) => edge.source));
  return rank[rank.indexOf(node) + (key === 'ArrowRight' ? 1 : -1)];
}

canvas.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith('Arrow')) {
    event.preventDefault();
    const next = selected === null ? middleNode() : neighbour(nodes[selected], event.key);
    if (next) select(next.id, true);
  } else if ((event.key === 'Enter' || event.key === ' ') && selected !== null) {
    event.preventDefault();
    unfold(nodes[selected]);
  } else if (event.key === '+' || event.key === '=') zoomAt(1.25);
  else if (event.key === '-') zoomAt(0.8);
  else if (event.key === '0') fit();
});

document.addEventListener('keydown', (event) => {
  if (event.target.matches('input, select') || byId('keys').open || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') {
    event.preventDefault();
    byId('search').focus();
    byId('search').select();
  } else if (event.key === '?') byId('keys').showModal();
  else if (event.key === 'Escape') {
    if (selected !== null) select(null, false);
    else if (marked) mark(null);
    canvas.focus();
  }
});

function fillKeys() {
  const rows = [['/', 'search; Enter and Shift+Enter go through what was found'], ['← ↑ → ↓', 'in the graph: along the edges, and beside'], ['Enter', 'unfold a step into the nodes of the model; in a table: show the step'], ['Esc', 'leave a step, a finding or the search'], ['+ − 0', 'zoom, and show all'], ['wheel', 'scroll; with Ctrl: zoom; drag moves'], ['double click', 'unfold a step'], ['?', 'these keys']];
  const list = make('dl', 'facts');
  for (const [key, what] of rows) list.append(make('dt', '', make('kbd', '', key)), make('dd', '', what));
  byId('keys').append(make('h2', '', 'Keys'), list, button('Close', () => byId('keys').close()));
}

// -- light and dark ----------------------------------------------------------

const dark = window.matchMedia('(prefers-color-scheme: dark)');

function theme(name) {
  document.documentElement.dataset.theme = name;
  byId('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
}

function switchTheme(name) {
  theme(name);
  drawStrip();
}

// -- the beginning -----------------------------------------------------------

function options(select_, list) {
  select_.append(...list.map(([value, label]) => {
    const option = make('option', '', label);
    option.value = value;
    return option;
  }));
  select_.closest('label').hidden = list.length < 2;
}

fillVerdict();
fillKeys();
buildTabs();
options(byId('size'), SIZES.map((item) => [item.key, item.label]));
options(byId('colour'), [['kind', 'kind'], ...(hasErrors ? [['error', 'error against f32']] : [])]);
byId('size').addEventListener('change', (event) => {
  size = SIZES.find((item) => item.key === event.target.value);
  resize();
  if (tab === 'Steps') openTab('Steps');
});
byId('colour').addEventListener('change', (event) => {
  colour = event.target.value;
  fillLegend();
  recolour();
});
byId('closer').addEventListener('click', () => zoomAt(1.25));
byId('wider').addEventListener('click', () => zoomAt(0.8));
byId('fit').addEventListener('click', fit);
byId('help').addEventListener('click', () => byId('keys').showModal());
byId('theme').addEventListener('click', () => switchTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
dark.addEventListener('change', () => switchTheme(dark.matches ? 'dark' : 'light'));
theme(dark.matches ? 'dark' : 'light');
openTab('Findings');
fillLegend();
relayout(begin);
let room = canvas.getBoundingClientRect();
new ResizeObserver(() => {
  const now = canvas.getBoundingClientRect();
  if (now.width === room.width && now.height === room.height) return; // its first call tells nothing new
  room = now;
  render();
  drawStrip();
}).observe(canvas);
const linked = /^#step-(\d+)$/.exec(location.hash);
if (linked && Number(linked[1]) < data.steps.length) select(nodeOfStep(Number(linked[1])).id, true);
document.documentElement.dataset.ready = Math.round(performance.now()); // milliseconds since the page was asked for
