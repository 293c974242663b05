// Where one is: the address after # names it, so that it can be sent to somebody.

const TABS = [['curves', 'Curves'], ['episodes', 'Episodes'], ['failures', 'Failures'], ['settings', 'Settings']];

function address(parts) {
  const well = (text) => (text.toWellFormed ? text.toWellFormed() : text);
  return '#' + Object.entries(parts).map(([name, value]) =>
    `${name}=${encodeURIComponent(well(String(value))).replaceAll('%2F', '/').replaceAll('%40', '@')}`).join('&');
}

function where() {
  const parts = {};
  for (const part of location.hash.slice(1).split('&')) {
    const [name, ...value] = part.split('=');
    try {
      parts[name] = decodeURIComponent(value.join('='));
    } catch {
      parts[name] = ''; // a broken address leads to the start
    }
  }
  return parts;
}

function showTab(name) {
  for (const [id] of TABS) byId(`view-${id}`).hidden = id !== name;
  for (const link of byId('tabs').children) {
    if (link.dataset.tab === name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.body.dataset.view = name;
}

function route() {
  const parts = where();
  tip.hide();
  if ('episode' in parts || 'row' in parts) {
    showTab('episodes');
    const row = findEpisode(parts);
    refilter();
    if (row >= 0) return showEpisode(row);
    closeEpisode();
    return clear(byId('episode')).append(el('p', { class: 'notice warn' }, `There is no episode ${parts.episode || parts.row} in this page.`));
  }
  if ('episodes' in parts) {
    showTab('episodes');
    refilter();
    // the first one, on the first visit, where it stands beside the list
    if (!browser.turn && window.innerWidth > 820 && browser.shown.length) return showEpisode(browser.shown[0]);
    return closeEpisode();
  }
  if ('failures' in parts) {
    showTab('failures');
    return showFailures();
  }
  if ('settings' in parts) {
    showTab('settings');
    return showSettings();
  }
  showTab('curves');
  return showCurves(parts.figure || '');
}

function keys(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const inEpisodes = document.body.dataset.view === 'episodes';
  const onList = event.target.id === 'episode-list' || event.target === document.body;
  const by = { j: 1, k: -1 }[event.key] || (onList && { ArrowDown: 1, ArrowUp: -1 }[event.key]);
  if (event.key === '/' && inEpisodes) byId('filter-text').focus();
  else if (event.key === 'Escape') location.hash = '#episodes';
  else if (by && inEpisodes) move(by);
  else return;
  event.preventDefault();
}

function prepareTop() {
  const names = data.runs.map((run) => run.name);
  byId('brand').append(el('b', {}, names.slice(0, 3).join(' · ') + (names.length > 3 ? ` and ${names.length - 3} more` : '')),
    data.runs.length === 1 ? stateBadge(data.runs[0]) : '');
  const failed = failureCount();
  const extra = { episodes: data.size.toLocaleString('en'), failures: failed ? failed.toLocaleString('en') : '' };
  byId('tabs').append(...TABS.map(([id, name]) => el('a', { href: `#${id}`, 'data-tab': id }, name,
    extra[id] && el('span', { class: id === 'failures' ? 'pill bad' : 'pill' }, extra[id]))));
}

async function start() {
  if (typeof DecompressionStream === 'undefined') throw new Error('this browser cannot open compressed data; one from 2023 or later can');
  await data.open();
  data.index.s = data.index.s || [];
  for (const column of ['id', 'run', 'kind', 'file', 'step', 'status', 'env', 'group', 'agents', 'returns', 'turns', 'invalid', 'tokens', 'notes', 'error', 'chunk', 'slot']) {
    data.index[column] = data.index[column] || [];
  }
  prepareTop();
  prepareEpisodes();
  byId('loading').remove();
  route();
  window.addEventListener('hashchange', route);
  document.addEventListener('keydown', keys);
  let timer = 0;
  window.addEventListener('resize', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      redraw();
      drawList();
    }, 100);
  });
  document.documentElement.dataset.ready = 'yes';
}

start().catch((error) => {
  const loading = byId('loading');
  const text = `This page cannot be shown: ${error.message}`;
  if (loading) loading.textContent = text;
  else byId('main').prepend(el('p', { class: 'notice bad' }, text));
  throw error;
});
