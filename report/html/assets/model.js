// The document of the page, with what is looked up in it.

const data = JSON.parse(byId('data').textContent);
const text = (index) => data.texts[index];
const KINDS = ['codes', 'floats', 'others'];
const WORDS = {
  int8: 'computes in int8',
  coded: 'multiplies codes in f32',
  f32: 'computes in f32',
  outside: 'outside the primitives',
  convert: 'converts',
  move: 'moves data',
  end: 'input or output',
};

// Nodes: inputs, steps, outputs. `index` is that of a step, or -1.
const nodes = [
  ...data.inputs.map(([name, type]) => ({ index: -1, what: 'input', name: text(name), types: text(type) })),
  ...data.steps.map((step, index) => ({
    index,
    step,
    what: text(step.primitive),
    name: text(step.name),
    types: text(step.types),
  })),
  ...data.outputs.map(([name, type]) => ({ index: -1, what: 'output', name: text(name), types: text(type) })),
];
nodes.forEach((node, id) => {
  node.id = id;
  node.shown = text(data.boxes[id]);
  node.category = node.step ? data.categories[node.step.category] : 'end';
  [node.column, node.rank] = data.places[id];
  node.into = [];
  node.outof = [];
});

const edges = data.edges.map(([source, target, value, type, kind, size, far, flat]) => {
  const bends = [];
  for (let at = 0; at < flat.length; at += 2) bends.push([flat[at], flat[at + 1]]);
  return { source: nodes[source], target: nodes[target], value: text(value), type: text(type), kind: KINDS[kind], size, far: !!far, bends };
});
for (const edge of edges) {
  edge.source.outof.push(edge);
  edge.target.into.push(edge);
}

const nodeOfStep = (index) => nodes[data.first + index];

// -- what a step costs -------------------------------------------------------

const SIZES = [
  { key: 'ms', label: 'estimated time', of: (step) => step.ms, show: milliseconds },
  { key: 'macs', label: 'multiply-adds', of: (step) => step.macs, show: large },
  { key: 'bytes', label: 'bytes', of: (step) => step.bytes, show: bytes },
];
if (data.steps.some((step) => step.time !== undefined)) {
  SIZES.unshift({ key: 'time', label: 'measured time', of: (step) => step.time || 0, show: milliseconds });
}
const hasErrors = data.steps.some((step) => step.error !== undefined);
let size = SIZES[0];

function costs() {
  const all = data.steps.map(size.of);
  return { all, most: Math.max(...all, 1e-12), sum: all.reduce((a, b) => a + b, 0) };
}

// -- what belongs to a step: read when a story, a table or the search asks ---

function once(make_) {
  let made = null;
  return () => (made === null ? (made = make_()) : made);
}

const details = once(() => {
  const found = JSON.parse(byId('details').textContent);
  data.texts = data.texts.concat(found.texts);
  return found;
});
const detailsOf = (node) => details().steps[node.index];

function grouped(rows, key) {
  const found = new Map();
  for (const row of rows) {
    const name = key(row);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(row);
  }
  return found;
}

const quantizers = once(() => new Map(details().quantizers.map(([name, form, value]) => [name, { form: text(form), value: text(value) }])));
const fatesAt = once(() => grouped(details().fates, (fate) => fate[3]));
const decisionsAt = once(() => grouped(details().decisions, (decision) => decision[1]));
const stepsOf = once(() => {
  const found = new Map();
  details().steps.forEach((step, index) => {
    for (const name of step.origin) {
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(index);
    }
  });
  return found;
});
const findingsOf = new Map();
data.findings.forEach((finding, number) => {
  for (const index of finding.steps) {
    if (!findingsOf.has(index)) findingsOf.set(index, []);
    findingsOf.get(index).push(number);
  }
});

// Everything by which a step is found, in small letters.
function haystack(node) {
  if (node.hay === undefined) {
    const known = node.step && detailsOf(node);
    const words = known
      ? [`#${node.index} `, node.what, node.types, ...node.step.fused.map(text), ...known.origin.map(text), ...known.reads.map((read) => text(read[1])), ...known.writes.map((write) => text(write[0]))]
      : [node.what, node.name, node.types];
    node.hay = words.join(' ').toLowerCase();
  }
  return node.hay;
}

function matching(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return nodes.filter((node) => wanted.every((word) => haystack(node).includes(word)));
}
