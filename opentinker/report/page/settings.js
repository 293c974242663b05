// The head of the page, settings and their differences, failures.

function stateBadge(run) {
  return badge({ finished: 'good', failed: 'bad', running: 'live', interrupted: 'warn' }[run.state] || 'warn', run.state);
}

function progressOf(run) {
  return run.steps === null ? `step ${run.step}` : `step ${run.step.toLocaleString('en')} of ${run.steps.toLocaleString('en')}`;
}

// An ISO time to the minute; in UTC, as everything that is written down.
function clock(time) {
  return time.replace(/^([\d-]+)T(\d+:\d+)\S*?(Z|\+00:00)?$/, (_, day, minute, utc) => `${day} ${minute}${utc ? ' UTC' : ''}`);
}

function lastOf(run, key) {
  const values = run.figures[key] || [];
  for (let place = values.length - 1; place >= 0; place--) if (values[place] !== null) return values[place];
  return null;
}

// The figures at the end: cards for one run, a table for several.
function summary() {
  const lines = data.charts.filter((chart) => chart.main).flatMap((chart) =>
    chart.lines.map(([who, key]) => ({ title: chart.title, who, key })));
  if (data.runs.length === 1) {
    const [run] = data.runs;
    const groups = new Map();
    for (const line of lines) groups.set(line.title, [...(groups.get(line.title) || []), line]);
    return el('section', { class: 'summary', 'aria-label': 'The run at a glance' },
      el('div', { class: 'card state' }, el('h2', {}, run.name), el('p', {}, stateBadge(run), ' ', progressOf(run)),
        run.updated && el('p', { class: 'facts' }, clock(run.updated)), el('p', { class: 'facts path' }, run.path)),
      [...groups].slice(0, 5).map(([title, members]) => el('div', { class: 'card' }, el('h3', {}, title),
        el('dl', { class: 'figures' }, members.slice(0, 4).map(({ who, key }) =>
          el('div', {}, el('dt', {}, who), el('dd', {}, figure(lastOf(run, key), 3))))),
        members.length > 4 && el('p', { class: 'facts' }, `and ${members.length - 4} more below`))));
  }
  return el('section', { class: 'summary-table', 'aria-label': 'The runs at their ends', tabindex: 0 }, el('table', {},
    el('thead', {}, el('tr', {}, el('th', {}, 'run'), el('th', {}, 'state'), el('th', {}, 'step'),
      lines.map(({ title, who }) => el('th', {}, title, el('small', {}, who))))),
    el('tbody', {}, data.runs.map((run, number) => el('tr', {}, el('th', { scope: 'row' }, swatch({ colour: lineColour(number) }), ' ', run.name),
      el('td', {}, stateBadge(run)), el('td', {}, progressOf(run).replace('step ', '')),
      lines.map(({ key }) => el('td', { class: 'number' }, figure(lastOf(run, key), 3))))))));
}

// What `opentinker eval` measured, the newest first.
function evaluationTable() {
  const rows = data.runs.flatMap((run, number) => run.evaluations.map((row) => ({ ...row, number, run: run.name })));
  if (!rows.length) return null;
  const several = data.runs.length > 1;
  const share = (value) => (value === null ? '–' : `${(100 * value).toFixed(1)} %`);
  const columns = [['win', 'wins', share], ['draw', 'draws', share], ['loss', 'losses', share], ['success', 'success', share],
    ['return', 'return', (value) => figure(value, 3)]].filter(([name]) => rows.some((row) => row[name][0] !== null));
  const cell = ([value, low, high], show) => el('td', { class: 'number' }, show(value),
    low !== null && high !== null && el('small', {}, `${show(low)} to ${show(high)}`));
  const line = (row) => el('tr', {}, several && el('td', {}, swatch({ colour: lineColour(row.number) }), ' ', row.run),
    el('th', { scope: 'row' }, row.opponent), el('td', {}, row.seat),
    el('td', {}, figure(row.step), row.weights !== 'latest' && ` ${row.weights}`), el('td', { class: 'number' }, figure(row.games)),
    columns.map(([name, , show]) => cell(row[name], show)), el('td', { class: 'number' }, share(row.invalid)));
  return el('section', { class: 'evaluations' }, el('h2', {}, 'Evaluations'),
    el('div', { class: 'summary-table', tabindex: 0, role: 'group', 'aria-label': 'Evaluations' }, el('table', {},
      el('thead', {}, el('tr', {}, several && el('th', {}, 'run'), ['against', 'seat', 'step'].map((name) => el('th', {}, name)),
        ['games', ...columns.map((column) => column[1]), 'invalid'].map((name) => el('th', { class: 'number' }, name)))),
      el('tbody', {}, rows.map(line)))),
    el('p', { class: 'facts' }, 'Below a figure its 95 % interval.'));
}

function notices() {
  const notes = [];
  for (const run of data.runs) {
    const name = data.runs.length > 1 ? `${run.name}: ` : '';
    if (run.state === 'failed') notes.push(el('p', { class: 'notice bad' }, `${name}the run failed. `, run.error, ' ', el('a', { href: '#failures' }, 'See why')));
    if (run.state === 'running') notes.push(el('p', { class: 'notice' }, `${name}still running; this page shows what was there when it was made.`));
    if (run.torn) notes.push(el('p', { class: 'notice warn' }, `${name}${count(run.torn, 'line')} of metrics.jsonl could not be read and ${run.torn === 1 ? 'is' : 'are'} left out.`));
  }
  return notes;
}

// What of the episodes is not here.
function limits() {
  const notes = [];
  data.runs.forEach((run, number) => {
    const name = data.runs.length > 1 ? `${run.name}: ` : '';
    const here = (data.index.run || []).reduce((sum, at) => sum + (at === number), 0);
    if (run.unread) notes.push(el('p', { class: 'notice warn' }, `${name}${count(run.unread, 'record')} could not be read and ${run.unread === 1 ? 'is' : 'are'} left out.`));
    if (here + run.unread < run.episodes) {
      notes.push(el('p', { class: 'notice' }, `${name}${here.toLocaleString('en')} of ${run.episodes.toLocaleString('en')} recorded episodes are in this page, evenly spread over the run, failed ones first. opentinker show --episodes N sets how many.`));
    }
    if (!run.episodes) notes.push(el('p', { class: 'notice' }, `${name}no episodes were recorded (rollout.record and rollout.record_every say which are).`));
  });
  return notes;
}

function isTree(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length > 0;
}

function settingText(value) {
  if (value === undefined) return '(not set)';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function child(value, key) {
  return value !== null && typeof value === 'object' && Object.hasOwn(value, key) ? value[key] : undefined;
}

function differs(values) {
  return values.some((value) => JSON.stringify(value) !== JSON.stringify(values[0]));
}

function settingNode(key, values, depth) {
  const different = values.length > 1 && differs(values);
  if (values.some(isTree)) {
    const keys = distinct(values.flatMap((value) => (isTree(value) ? Object.keys(value) : [])));
    return el('details', { class: different ? 'differs' : 'same', open: depth < 3 || different },
      el('summary', {}, key), el('div', { class: 'branch' }, keys.map((name) => settingNode(name, values.map((value) => child(value, name)), depth + 1))));
  }
  const shown = different ? values.map((value, number) => el('div', { class: 'of-run' }, swatch({ colour: lineColour(number) }), ' ',
    el('small', {}, data.runs[number].name), ' ', el('code', {}, settingText(value)))) : el('code', {}, settingText(values[0]));
  return el('div', { class: different ? 'setting differs' : 'setting same' }, el('span', { class: 'key-name' }, key), el('div', {}, shown));
}

function showSettings() {
  const view = clear(byId('view-settings'));
  const configs = data.runs.map((run) => run.config);
  const several = data.runs.length > 1;
  view.append(el('h2', {}, several ? 'Settings of the runs' : 'Settings'));
  if (configs.some((config) => !isTree(config))) {
    data.runs.forEach((run) => view.append(el('h3', {}, run.name),
      el('pre', { class: 'prompt' }, run.config === null ? 'There is no config.yaml.' : isTree(run.config) ? JSON.stringify(run.config, null, 2) : settingText(run.config))));
    return;
  }
  if (several) {
    view.append(el('label', { class: 'tick-box' }, el('input', {
      type: 'checkbox', id: 'only-differences', onchange: (event) => byId('setting-tree').classList.toggle('only-differences', event.target.checked),
    }), 'only what differs'));
  }
  const keys = distinct(configs.flatMap((config) => Object.keys(config)));
  view.append(el('div', { class: 'card tree', id: 'setting-tree' }, keys.map((key) => settingNode(key, configs.map((config) => child(config, key)), 1))));
}

function failedRows() {
  const rows = [];
  for (let row = 0; row < data.size; row++) if (STATUS[data.index.status[row]] === 'failed') rows.push(row);
  return rows;
}

function failureCount() {
  return failedRows().length + data.runs.filter((run) => run.state === 'failed').length;
}

function showFailures() {
  const view = clear(byId('view-failures'));
  view.append(el('h2', {}, 'Failures'));
  for (const run of data.runs) {
    if (run.state !== 'failed') continue;
    view.append(el('article', { class: 'card failure' }, el('h3', {}, `The run ${run.name} failed at step ${run.step}`),
      el('p', { class: 'notice bad' }, run.error || 'It left no message.'), run.traceback && el('pre', { class: 'traceback' }, run.traceback)));
  }
  const groups = new Map();
  for (const row of failedRows()) {
    const error = data.text('error', row) || 'failed without a word';
    groups.set(error, [...(groups.get(error) || []), row]);
  }
  for (const [error, rows] of [...groups].sort((one, other) => other[1].length - one[1].length)) view.append(failureCard(error, rows));
  if (!failureCount()) view.append(el('p', { class: 'empty' }, 'Nothing failed in what this page shows.'));
}

function failureCard(error, rows) {
  const trace = el('pre', { class: 'traceback' }, 'opening…');
  const open = async (event) => {
    if (event.target.open) clear(trace).append(say((await data.episode(rows[0])).error || 'It left no traceback.'));
  };
  const all = el('button', {
    type: 'button',
    onclick: () => {
      setFilter('status', 'failed');
      location.hash = '#episodes';
    },
  }, 'all failed episodes');
  return el('article', { class: 'card failure' }, el('h3', {}, el('code', {}, error)),
    el('p', {}, count(rows.length, 'episode'), ': ', rows.slice(0, 12).map((row) => [el('a', { href: episodeAddress(row) }, data.text('id', row)), ' ']),
      rows.length > 12 && [`and ${rows.length - 12} more `, all]),
    el('details', { ontoggle: open }, el('summary', {}, `Traceback of ${data.text('id', rows[0])}`), trace));
}
