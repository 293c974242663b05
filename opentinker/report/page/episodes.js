// The list of episodes, what of it is shown, and the episode beside it.

const ROW = 56; // height of a row, as in the style sheet

const browser = {
  shown: [], row: -1, ready: false, turn: 0,
  filter: { run: '', kind: '', step: '', status: '', note: '', agent: '', low: '', high: '', invalid: false, text: '' },
  sort: 'order',
  hits: null, // rows whose text was found; null: none is looked for
};

function returnOf(row, agent) {
  const places = data.index.agents[row];
  const returns = data.index.returns[row];
  if (!agent) return Math.max(...returns.filter((value) => typeof value === 'number'));
  const place = places.findIndex((name) => data.index.s[name] === agent);
  return place < 0 ? null : returns[place];
}

function matches(row) {
  const { index } = data;
  const f = browser.filter;
  if (f.run !== '' && index.run[row] !== Number(f.run)) return false;
  if (f.kind && data.text('kind', row) !== f.kind && data.text('file', row) !== f.kind) return false;
  if (f.step !== '' && index.step[row] !== Number(f.step)) return false;
  if (f.status && STATUS[index.status[row]] !== f.status) return false;
  if (f.note && !data.texts('notes', row).includes(f.note)) return false;
  if (f.invalid && !index.invalid[row]) return false;
  if (f.agent && !data.texts('agents', row).includes(f.agent)) return false;
  if (f.low !== '' || f.high !== '') {
    const fits = (value) => typeof value === 'number' && (f.low === '' || value >= Number(f.low)) && (f.high === '' || value <= Number(f.high));
    if (!(f.agent ? fits(returnOf(row, f.agent)) : index.returns[row].some(fits))) return false;
  }
  return !browser.hits || browser.hits.has(row);
}

function refilter() {
  const rows = [];
  for (let row = 0; row < data.size; row++) if (matches(row)) rows.push(row);
  const by = {
    turns: (row) => -data.index.turns[row],
    best: (row) => -returnOf(row, browser.filter.agent),
    worst: (row) => returnOf(row, browser.filter.agent),
    newest: (row) => -data.index.step[row],
  }[browser.sort];
  if (by) {
    const keys = new Map(rows.map((row) => [row, by(row)]));
    rows.sort((one, other) => keys.get(one) - keys.get(other) || one - other);
  }
  browser.shown = rows;
  byId('episode-count').textContent = rows.length === data.size ? count(data.size, 'episode') :
    `${rows.length.toLocaleString('en')} of ${count(data.size, 'episode')}`;
  const list = byId('episode-list');
  list.firstElementChild.style.height = `${rows.length * ROW}px`;
  list.scrollTop = Math.min(list.scrollTop, Math.max(0, rows.length * ROW - list.clientHeight));
  drawList();
}

// Only the rows in sight are elements.
function drawList() {
  const list = byId('episode-list');
  const room = list.firstElementChild;
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 6);
  const last = Math.min(browser.shown.length, Math.ceil((list.scrollTop + (list.clientHeight || 600)) / ROW) + 6);
  clear(room);
  for (let place = first; place < last; place++) room.append(listRow(browser.shown[place], place));
  if (!browser.shown.length) room.append(el('p', { class: 'empty' }, 'No episode is like that.'));
  const current = byId(`row-${browser.row}`);
  if (current) list.setAttribute('aria-activedescendant', current.id);
  else list.removeAttribute('aria-activedescendant');
}

function listRow(row, place) {
  const { index } = data;
  const status = STATUS[index.status[row]];
  const returns = index.returns[row];
  const notes = [count(index.turns[row], 'turn')];
  if (data.text('kind', row) !== 'training') notes.unshift(data.text('kind', row));
  if (data.runs.length > 1) notes.unshift(data.runs[index.run[row]].name);
  if (index.invalid[row]) notes.push(`${index.invalid[row]} invalid`);
  if (status !== 'terminated') notes.push(status);
  notes.push(...data.texts('notes', row));
  const node = el('div', {
    class: `row ${status}`, id: `row-${row}`, role: 'option', 'aria-selected': String(row === browser.row),
    'aria-setsize': browser.shown.length, 'aria-posinset': place + 1, onclick: () => go(row),
  }, el('div', { class: 'row-top' }, el('span', { class: 'row-id' }, data.text('id', row)),
    el('span', { class: 'returns', title: plain(data.texts('agents', row).join(' / ')) }, returns.slice(0, 4).map((value) => el('span', { class: sign(value) }, signed(value))), returns.length > 4 && '…')),
  el('div', { class: 'row-more' }, status === 'failed' ? data.text('error', row) || 'failed' : notes.join(' · ')));
  node.style.top = `${place * ROW}px`;
  return node;
}

function episodeAddress(row) {
  const id = data.text('id', row);
  const parts = { episode: id };
  if (data.runs.length > 1) parts.run = data.runs[data.index.run[row]].name;
  if (data.text('kind', row) !== 'training') parts.file = data.text('file', row);
  return findEpisode(parts) === row ? address(parts) : `#row=${row}`;
}

function findEpisode({ episode, run, file, row }) {
  if (row !== undefined) return Number(row) in data.index.id ? Number(row) : -1;
  const fits = (at) => data.text('id', at) === episode && (run === undefined || data.runs[data.index.run[at]].name === run) &&
    (file === undefined || data.text('file', at) === file);
  if (!data.places) {
    data.places = new Map();
    data.index.id.forEach((id, at) => data.places.set(id, [...(data.places.get(id) || []), at]));
  }
  const text = data.index.s.indexOf(episode);
  const found = (data.places.get(text) || []).find(fits);
  return found === undefined ? -1 : found;
}

function go(row) {
  location.hash = episodeAddress(row);
}

function move(by) {
  if (!browser.shown.length) return;
  const at = browser.shown.indexOf(browser.row);
  go(browser.shown[Math.max(0, Math.min(browser.shown.length - 1, at < 0 ? 0 : at + by))]);
}

function reveal(row) {
  const place = browser.shown.indexOf(row);
  const list = byId('episode-list');
  if (place < 0) return;
  const [top, height] = [place * ROW, list.clientHeight];
  if (top < list.scrollTop) list.scrollTop = top - ROW;
  else if (top + ROW > list.scrollTop + height) list.scrollTop = top - height + 2 * ROW;
}

async function showEpisode(row) {
  browser.row = row;
  const turn = ++browser.turn;
  byId('view-episodes').classList.add('opened');
  reveal(row);
  drawList();
  const place = byId('episode');
  try {
    const episode = await data.episode(row);
    if (turn !== browser.turn) return; // another one was asked for meanwhile
    clear(place).append(episodeHead(episode), episodeBody(episode));
  } catch (error) {
    clear(place).append(el('p', { class: 'notice bad' }, `This episode cannot be opened: ${error.message}`));
  }
  place.scrollTop = 0;
  place.dataset.row = row;
}

function closeEpisode() {
  browser.row = -1;
  browser.turn++;
  byId('view-episodes').classList.remove('opened');
  clear(byId('episode')).append(el('p', { class: 'empty' }, data.size ? 'Choose an episode, or press j for the first one.' : ''));
  drawList();
}

function episodeHead(episode) {
  const { index } = data;
  const { row } = episode;
  const returns = new Map(data.texts('agents', row).map((agent, place) => [agent, index.returns[row][place]]));
  const facts = [stepName(index.step[row]), data.text('env', row), `seed ${episode.seed}`, from(row)];
  if (data.runs.length > 1) facts.unshift(episode.run.name);
  const seconds = Object.entries(JSON.parse(episode.timings)).map(([name, value]) => `${name} ${figure(value, 2)} s`).join(', ');
  return el('header', { class: 'episode-head' },
    el('div', { class: 'episode-title' }, el('a', { class: 'back', href: '#episodes' }, '← list'), el('h2', {}, episode.id),
      badge(episode.status === 'terminated' ? 'good' : episode.status === 'failed' ? 'bad' : 'warn', episode.status),
      el('span', { class: 'steppers' },
        el('button', { type: 'button', onclick: () => move(-1), title: 'previous episode (k)', 'aria-label': 'previous episode' }, '↑'),
        el('button', { type: 'button', onclick: () => move(1), title: 'next episode (j)', 'aria-label': 'next episode' }, '↓'))),
    el('p', { class: 'facts' }, facts.join(' · ')),
    el('ul', { class: 'seats' }, episode.seats.map(({ agent, who }, place) => el('li', { class: `seat-${place % 6}` },
      el('b', {}, agent), who && el('small', {}, who), el('span', { class: sign(returns.get(agent)) }, signed(returns.get(agent)))))),
    siblings(row),
    episode.outcome !== '{}' && el('p', { class: 'facts' }, 'Outcome: ', el('code', {}, episode.outcome)),
    seconds && el('p', { class: 'facts' }, 'Time: ', seconds));
}

function stepName(step) {
  return step < 0 ? 'no step' : `step ${step}`;
}

function from(row) {
  return data.text('kind', row) === 'training' ? 'training' : data.text('file', row);
}

// Episodes of one group share task and seed: their returns side by side are what the advantage compares.
function siblings(row) {
  const { index } = data;
  const same = (at) => index.run[at] === index.run[row] && index.kind[at] === index.kind[row] &&
    index.step[at] === index.step[row] && index.group[at] === index.group[row];
  const group = [];
  for (let at = Math.max(0, row - 256); at < Math.min(data.size, row + 256); at++) if (same(at)) group.push(at);
  if (group.length < 2 || data.text('kind', row) !== 'training') return null;
  return el('nav', { class: 'siblings', 'aria-label': 'Episodes of the same group' }, 'Same group: ', group.map((at) =>
    el('a', { href: episodeAddress(at), 'aria-current': at === row ? 'true' : null, title: plain(data.text('id', at)) },
      index.returns[at].map(signed).join(' / '))));
}

function episodeBody(episode) {
  const body = el('div', {});
  if (episode.error) body.append(el('h3', {}, 'It failed'), el('pre', { class: 'traceback' }, episode.error));
  if (episode.turns.some((turn) => turn.completion)) body.append(chanceLegend());
  if (!episode.turns.length) body.append(el('p', { class: 'empty' }, 'Nobody had a turn.'));
  body.append(storyView(episode));
  return body;
}

// Text search opens every chunk once, one after the other, and keeps none of them.
async function search(text) {
  const mine = ++browser.searching;
  const wanted = text.trim().toLowerCase();
  const said = byId('search-state');
  if (!wanted) {
    browser.hits = null;
    said.textContent = '';
    refilter();
    return;
  }
  const hits = new Set();
  const inIndex = new Set();
  data.index.s.forEach((item, place) => item.toLowerCase().includes(wanted) && inIndex.add(place));
  const rows = new Map();
  for (let row = 0; row < data.size; row++) {
    if (inIndex.has(data.index.id[row])) hits.add(row);
    const number = data.index.chunk[row];
    if (!rows.has(number)) rows.set(number, []);
    rows.get(number).push(row);
  }
  let done = 0;
  for (const [number, members] of rows) {
    said.textContent = `searching ${Math.round((100 * done++) / rows.size)} %`;
    const chunk = await (data.chunks.get(number) || unpack(`chunk-${number}`));
    if (mine !== browser.searching) return; // something else is looked for by now
    const found = new Set();
    chunk.s.forEach((item, place) => item.toLowerCase().includes(wanted) && found.add(place));
    if (found.size) for (const row of members) if (mentions(chunk.e[data.index.slot[row]], found)) hits.add(row);
  }
  browser.hits = hits;
  said.textContent = '';
  refilter();
}
browser.searching = 0;

function mentions([turns, messages, , error, outcome], found) {
  return found.has(error) || found.has(outcome) || messages.some((message) => found.has(message[2])) ||
    turns.some((turn) => [9, 10, 16, 17].some((place) => found.has(turn[place])) || (turn[8] && found.has(turn[8][3])));
}

function distinct(values) {
  return [...new Set(values)];
}

// Where episodes come from; evaluations and games of a human file by file.
function sources() {
  const kinds = distinct(data.index.kind).map((place) => data.index.s[place]);
  const files = new Set();
  for (let row = 0; row < data.size && files.size < 100; row++) if (data.text('kind', row) !== 'training') files.add(data.text('file', row));
  return [...kinds, ...(files.size > 1 ? files : [])];
}

function filters() {
  const { index } = data;
  const f = browser.filter;
  const pick = (name, label, options, least = 2) => {
    if (options.length < least) return null;
    const box = choice([['', 'all'], ...options.map((option) => (Array.isArray(option) ? option : [option, String(option)]))], (event) => {
      f[name] = event.target.value;
      refilter();
    }, { id: `filter-${name}` });
    box.value = f[name];
    return field(label, box);
  };
  const number = (name, label) => field(label, el('input', {
    type: 'number', step: 'any', id: `filter-${name}`, value: f[name],
    oninput: (event) => {
      f[name] = event.target.value;
      refilter();
    },
  }));
  const notes = distinct((index.notes || []).flat()).map((place) => index.s[place]).slice(0, 200);
  const sort = choice([['order', 'as played'], ['newest', 'newest first'], ['best', 'highest return'], ['worst', 'lowest return'], ['turns', 'most turns']],
    (event) => {
      browser.sort = event.target.value;
      refilter();
    }, { id: 'sort' });
  let timer = 0;
  return el('form', { class: 'filters', onsubmit: (event) => event.preventDefault() },
    el('label', { class: 'field wide' }, el('span', {}, 'Search'), el('input', {
      type: 'search', id: 'filter-text', placeholder: 'observation, reply, action, message, error, id',
      oninput: (event) => {
        clearTimeout(timer);
        timer = setTimeout(() => search(event.target.value), 200);
      },
    })),
    el('details', { id: 'filters', open: window.innerWidth >= 1100 }, el('summary', {}, 'Filters'), el('div', { class: 'filter-grid' },
      pick('run', 'Run', data.runs.length > 1 ? data.runs.map((run, place) => [place, run.name]) : []),
      pick('kind', 'From', sources()),
      pick('step', 'Step', distinct(index.step || []).sort((one, other) => one - other).map((step) => [step, step < 0 ? 'none' : String(step)])),
      pick('status', 'Status', distinct(index.status || []).map((place) => STATUS[place])),
      pick('note', 'Outcome', notes, 1),
      pick('agent', 'Agent', distinct((index.agents || []).flat()).map((place) => index.s[place])),
      number('low', 'Return from'), number('high', 'Return to'), field('Sort', sort),
      el('label', { class: 'tick-box' }, el('input', {
        type: 'checkbox', id: 'filter-invalid',
        onchange: (event) => {
          f.invalid = event.target.checked;
          refilter();
        },
      }), 'with invalid replies'))));
}

function setFilter(name, value) {
  browser.filter[name] = value;
  const control = byId(`filter-${name}`);
  if (control) control.value = value;
  refilter();
}

function prepareEpisodes() {
  const list = el('div', { id: 'episode-list', role: 'listbox', tabindex: 0, 'aria-label': 'Episodes', onscroll: drawList },
    el('div', { class: 'room', role: 'presentation' }));
  byId('view-episodes').append(
    el('div', { class: 'browser' },
      el('div', { class: 'side' }, filters(),
        el('p', { class: 'counts' }, el('span', { id: 'episode-count', role: 'status' }), ' ', el('span', { id: 'search-state', role: 'status' }),
          el('span', { class: 'keys' }, el('kbd', {}, 'j'), ' ', el('kbd', {}, 'k'), ' next, previous')),
        list, el('div', { class: 'side-notes' }, limits())),
      el('div', { class: 'detail', id: 'episode', 'aria-live': 'off' })));
}
