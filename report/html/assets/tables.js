// The lists at the left: findings as cards, and tables of which only the rows in sight exist.

const ROW = 30;
const panel = byId('panel');

const whyOf = (fate) => text(fate[5]);
const TABLES = {
  Steps: {
    columns: [
      ['#', (row) => row, 'number', (row) => row],
      ['primitive', (row) => text(data.steps[row].primitive), 'kind'],
      [() => size.label, (row) => size.show(size.of(data.steps[row])), 'cost', (row) => size.of(data.steps[row])],
      ['layer', (row) => text(data.steps[row].name), 'long'],
      ['types', (row) => text(data.steps[row].types), 'long'],
      ['fused', (row) => data.steps[row].fused.map(text).join(', '), 'long'],
    ],
    rows: () => data.steps.map((_, index) => index),
    kind: (row) => kindOf(nodeOfStep(row)),
    leads: (row) => row,
    found: (row) => haystack(nodeOfStep(row)),
  },
  Quantizers: {
    columns: [
      ['quantizer', (row) => text(row[0]), 'long'],
      ['half', (row) => text(row[1])],
      ['went to', (row) => text(row[2]), 'fate'],
      ['step', (row) => (row[3] < 0 ? '–' : `#${row[3]}`), 'number', (row) => row[3]],
      ['read by', (row) => text(row[4]) || '–', 'long'],
      ['why', whyOf, 'long'],
    ],
    rows: () => details().fates,
    kind: (row) => ({ standalone: 'convert', fallback: 'outside', post_op: 'f32' })[text(row[2])] || 'int8',
    leads: (row) => (row[3] >= 0 ? row[3] : (stepsOf().get(row[0]) || [null])[0]),
    found: (row) => [row[0], row[2], row[4], row[5]].map(text).join(' ').toLowerCase(),
  },
  Decisions: {
    columns: [
      ['did', (row) => (row[2] ? 'refused' : 'fired'), 'did', (row) => -row[2]],
      ['rule', (row) => text(row[0]), 'long'],
      ['at', (row) => text(row[1]), 'long'],
      ['reason', (row) => text(row[3]), 'long'],
      ['expected', (row) => text(row[4]), 'long'],
      ['found', (row) => text(row[5]), 'long'],
      ['fix', (row) => text(row[6]), 'long'],
    ],
    rows: () => details().decisions,
    kind: (row) => (row[2] ? 'f32' : 'int8'),
    leads: (row) => (stepsOf().get(row[1]) || [null])[0],
    found: (row) => [row[0], row[1], row[3], row[4], row[5], row[6]].map(text).join(' ').toLowerCase(),
  },
};
const sorting = { Decisions: { column: 0, down: false } };
let tab = 'Findings';
let words = '';
let table = null;

function openTab(name) {
  tab = name;
  for (const item of byId('tabs').children) {
    const here = item.dataset.tab === name;
    item.setAttribute('aria-selected', here);
    item.tabIndex = here ? 0 : -1;
  }
  panel.replaceChildren();
  table = null;
  if (name === 'Findings') panel.append(...findingCards());
  else openTable(TABLES[name]);
}

function buildTabs() {
  const counts = { Findings: data.findings.length, Steps: data.steps.length, Quantizers: data.verdict.quantizers, Decisions: data.decisions };
  const names = Object.keys(counts);
  for (const name of names) {
    const item = button('', () => openTab(name), 'tab');
    item.append(name, ' ', make('span', 'count', thousands(counts[name])));
    item.dataset.tab = name;
    item.setAttribute('role', 'tab');
    item.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      openTab(names[(names.indexOf(tab) + step + names.length) % names.length]);
      byId('tabs').children[names.indexOf(tab)].focus();
    });
    byId('tabs').append(item);
  }
}

// -- findings ----------------------------------------------------------------

function findingCards() {
  if (!data.findings.length) return [make('p', 'empty', 'No findings: nothing here writes f32 or runs outside int8.')];
  return data.findings.map((finding, number) => {
    const card = make('article', `card g-${finding.gain}${finding.shown ? '' : ' minor'}`);
    const head = button('', () => mark(marked && card.classList.contains('on') ? null : number), 'head');
    head.append(make('strong', '', finding.what), make('span', 'gain', finding.saves));
    card.dataset.finding = number;
    card.append(head, make('p', 'why', finding.why));
    card.append(make('p', finding.remedy ? 'change' : 'why', make('b', '', finding.tool ? `${finding.tool}: ` : finding.remedy ? 'Change: ' : ''), finding.change));
    const layers = make('div', 'chips');
    finding.chips.forEach((shown, place) => {
      const name = finding.layers[place];
      const lead = () => (stepsOf().get(name) || []).find((index) => finding.steps.includes(index)) ?? finding.steps[0];
      const chip = button(shown, () => select(nodeOfStep(lead()).id, true), 'chip');
      chip.title = text(name);
      layers.append(chip);
    });
    const rest = finding.layers.length - finding.chips.length;
    if (rest) layers.append(make('span', 'dim', `and ${thousands(rest)} more`));
    card.append(layers);
    return card;
  });
}

// Shows the steps of a finding, and fades the others; null: all.
function mark(number) {
  marked = number === null ? null : new Set(data.findings[number].steps.map((index) => nodeOfStep(index).id));
  for (const card of panel.querySelectorAll('.card')) card.classList.toggle('on', Number(card.dataset.finding) === number);
  recolour();
  if (number !== null && data.findings[number].steps.length) show(nodeOfStep(data.findings[number].steps[0]));
}

// -- tables ------------------------------------------------------------------

function openTable(spec) {
  const head = make('div', 'row headrow');
  const body = make('div', 'rows');
  const room = make('div', 'room');
  const scroll = make('div', 'scroll', head, room);
  room.append(body);
  scroll.tabIndex = 0;
  scroll.setAttribute('role', 'table');
  head.setAttribute('role', 'row');
  scroll.setAttribute('aria-label', `${tab}: arrows move, Enter shows the step`);
  panel.append(scroll);
  table = { spec, scroll, room, body, rows: [], at: -1 };
  spec.columns.forEach((column, number) => {
    const label = typeof column[0] === 'function' ? column[0]() : column[0];
    const cell = button(label, () => sortBy(number), `cell ${column[2] || ''}`);
    cell.setAttribute('role', 'columnheader');
    head.append(cell);
  });
  scroll.addEventListener('scroll', fillTable);
  scroll.addEventListener('keydown', tableKey);
  filterTable();
}

function sortBy(number) {
  const before = sorting[tab];
  sorting[tab] = { column: number, down: before && before.column === number ? !before.down : table.spec.columns[number][2] === 'cost' };
  filterTable();
}

function filterTable() {
  if (!table) return;
  const { spec } = table;
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  let rows = spec.rows().filter((row) => wanted.every((word) => spec.found(row).includes(word)));
  const order = sorting[tab];
  if (order) {
    const key = spec.columns[order.column][3] || spec.columns[order.column][1];
    const sign = order.down ? -1 : 1;
    rows = rows.map((row) => [key(row), row]).sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : 0)).map((pair) => pair[1]);
  }
  [...table.scroll.firstChild.children].forEach((cell, number) => {
    cell.classList.toggle('sorted', !!order && order.column === number);
    cell.setAttribute('aria-sort', !order || order.column !== number ? 'none' : order.down ? 'descending' : 'ascending');
  });
  table.rows = rows;
  table.at = -1;
  table.room.style.height = `${Math.max(1, rows.length) * ROW}px`;
  table.scroll.scrollTop = 0;
  fillTable();
}

// Brings the first row of a step into sight.
function bringRow(index) {
  const { scroll, rows, spec } = table;
  const found = index === null ? -1 : rows.findIndex((row) => spec.leads(row) === index);
  const top = found * ROW;
  if (found >= 0 && (top < scroll.scrollTop || top + 2 * ROW > scroll.scrollTop + scroll.clientHeight)) {
    scroll.scrollTop = Math.max(0, top - scroll.clientHeight / 3);
  }
  fillTable();
}

function fillTable() {
  const { spec, scroll, body, rows } = table;
  const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 5);
  const last = Math.min(rows.length, first + Math.ceil(scroll.clientHeight / ROW) + 10);
  const made = [];
  for (let number = first; number < last; number += 1) {
    const row = rows[number];
    const lead = spec.leads(row);
    const here = selected !== null && lead !== null && nodeOfStep(lead).id === selected;
    const line = make('div', `row${number === table.at ? ' at' : ''}${here ? ' here' : ''}`);
    line.setAttribute('role', 'row');
    line.addEventListener('click', () => lead !== null && select(nodeOfStep(lead).id, true));
    for (const column of spec.columns) {
      const content = String(column[1](row));
      const cell = make('span', `cell ${column[2] || ''}`, content);
      cell.setAttribute('role', 'cell');
      if (content.length > 14) cell.title = content;
      if (['kind', 'fate', 'did'].includes(column[2])) cell.prepend(make('i', `dot k-${spec.kind(row)}`));
      line.append(cell);
    }
    made.push(line);
  }
  if (!rows.length) made.push(make('p', 'empty', words ? 'Nothing matches the search.' : 'None.'));
  body.style.transform = `translateY(${first * ROW}px)`;
  body.replaceChildren(...made);
}

function tableKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
  if (event.key === 'Enter' && table.at >= 0 && event.target === table.scroll) {
    const lead = table.spec.leads(table.rows[table.at]);
    if (lead !== null) select(nodeOfStep(lead).id, true);
    event.preventDefault();
    return;
  }
  if (!step || !table.rows.length) return;
  event.preventDefault();
  table.at = Math.max(0, Math.min(table.rows.length - 1, table.at + step));
  const top = table.at * ROW;
  const { scroll } = table;
  if (top < scroll.scrollTop) scroll.scrollTop = top;
  if (top + 2 * ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + 2 * ROW - scroll.clientHeight;
  fillTable();
}
