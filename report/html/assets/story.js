// The story of a node: what it does, from which nodes of the model, why, and what would be better.

const story = byId('story');

function tell(node) {
  story.hidden = !node;
  story.replaceChildren();
  if (!node) return;
  const head = make('header', '', make('h2', '', node.step ? `#${node.index} ${node.what}` : node.what), button('×', () => select(null, false), 'close'));
  head.lastChild.setAttribute('aria-label', 'Close (Escape)');
  story.append(head, make('p', 'layer', node.name), make('p', 'mono', node.types));
  if (node.step) story.append(...partsOf(node));
  else story.append(...linkPart('Read by', node.outof, 'target'), ...linkPart('Written by', node.into, 'source'));
  story.scrollTop = 0;
}

function partsOf(node) {
  const { step, index } = node;
  const { origin, facts } = detailsOf(node);
  return [
    make('p', `badge k-${node.category}`, make('i', `dot k-${node.category}`), WORDS[node.category]),
    costPart(step),
    ...(findingsOf.get(index) || []).map(findingPart),
    ...part('Fused, in order', step.fused.length ? [make('ol', 'plain', ...step.fused.map((name) => make('li', 'mono', text(name))))] : []),
    ...part(`From ${origin.length} ${origin.length === 1 ? 'node' : 'nodes'} of the model`, [originPart(origin)]),
    ...part('Quantizers that end here', fateRows(fatesAt().get(index) || [])),
    ...part('Attributes', [factsPart(facts)]),
    ...linkPart('Reads', node.into, 'source'),
    ...constantsPart(node),
    ...linkPart('Read by', node.outof, 'target'),
    ...decisionsPart(origin),
  ];
}

function part(title, inside) {
  return inside.length ? [make('section', '', make('h3', '', title), ...inside)] : [];
}

function costPart(step) {
  const rows = make('dl', 'facts');
  const line = (name, value) => rows.append(make('dt', '', name), make('dd', '', value));
  const sum = (of) => data.steps.reduce((all, other) => all + of(other), 0);
  for (const item of SIZES) {
    if (item.key === 'time' && step.time === undefined) continue;
    line(item.label, `${item.show(item.of(step))}, ${share(item.of(step), sum(item.of))}`);
  }
  if (step.error !== undefined) line('signal to noise', step.error >= 999 ? 'no difference' : `${step.error} dB`);
  return rows;
}

function findingPart(number) {
  const finding = data.findings[number];
  return make(
    'section', `note g-${finding.gain}`,
    make('strong', '', `Belongs to: ${finding.what}`),
    make('p', '', finding.why),
    make('p', '', make('b', '', finding.remedy ? 'Change: ' : ''), finding.change),
  );
}

function originPart(origin) {
  return make('ul', 'plain', ...origin.map((name) => {
    const quantizer = quantizers().get(name);
    return make('li', '', make('span', 'mono', text(name)), quantizer ? make('span', 'tag', quantizer.form) : null);
  }));
}

function fateRows(fates) {
  return fates.map((fate) => make(
    'p', 'entry',
    make('span', 'mono', text(fate[0])),
    make('span', 'dim', ` ${text(fate[1])} → `), make('b', '', text(fate[2])),
    make('span', 'dim', `: ${text(fate[5])}`),
  ));
}

function factsPart(facts) {
  const list = make('dl', 'facts');
  for (const [name, value] of facts) list.append(make('dt', '', text(name)), make('dd', 'mono', text(value)));
  return facts.length ? list : make('p', 'dim', 'none');
}

function linkPart(title, list, end) {
  return part(title, list.map((edge) => {
    const other = edge[end];
    const link = button(other.step ? `#${other.index} ${other.what}` : `${other.what} ${other.name}`, () => select(other.id, true), 'link');
    return make('p', 'entry', link, make('span', 'dim mono', ` ${edge.type}, ${edge.size}`));
  }));
}

function constantsPart(node) {
  const given = new Set(node.into.map((edge) => edge.value));
  const rows = detailsOf(node).reads.filter((read) => !given.has(text(read[1]))).map(([role, value, type]) => make(
    'p', 'entry', make('b', '', text(role)), ' ', make('span', 'mono', text(type)), make('span', 'dim mono', ` ${text(value)}`),
  ));
  return part('Constants', rows);
}

function decisionsPart(origin) {
  const found = origin.flatMap((name) => decisionsAt().get(name) || []);
  found.sort((a, b) => b[2] - a[2]);
  const rows = found.map(([rule, subject, refused, reason, expected, seen, hint, weighed]) => {
    const row = make('p', `entry ${refused ? 'refused' : 'fired'}`, make('b', '', refused ? 'refused ' : 'fired '), make('span', 'mono', text(rule)), make('span', 'dim', ` at ${text(subject)}: `), text(reason));
    for (const [label, value] of [['expected', expected], ['found', seen], ['fix', hint]]) {
      if (text(value)) row.append(make('br'), make('span', 'dim', `${label}: `), text(value));
    }
    if (weighed.length) row.append(make('br'), make('span', 'dim', `weighed: ${weighed.map(text).join('; ')}`));
    return row;
  });
  return part('Decisions', rows);
}
