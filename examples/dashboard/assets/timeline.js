// The picture of starts and ends: a bar for each job, a mark where it ended.

const svg = "http://www.w3.org/2000/svg";
const most = 24; // bars
const span = 10 * 60 * 1000; // at most, up to now

function shape(name, attributes, text) {
  const e = document.createElementNS(svg, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// step returns a round number of milliseconds, so that a time that long has a
// handful of ticks.
function step(length) {
  const rounds = [1, 2, 5, 10, 15, 30, 60, 120].map((s) => s * 1000);
  return rounds.find((r) => length / r <= 6) ?? rounds.at(-1);
}

function ago(ms) {
  if (ms === 0) return "now";
  return ms % 60000 === 0 ? `−${ms / 60000} min` : `−${ms / 1000} s`;
}

// draw shows jobs, in order of start, as they stand at the time now.
export function draw(chart, jobs, now) {
  const end = (job) => (job.ended ? job.started + job.elapsed : now);
  const recent = jobs.filter((job) => end(job) > now - span).slice(-most);
  const width = chart.clientWidth || 600;
  const rowHeight = 18;
  const height = recent.length * rowHeight + 20;
  const first = Math.max(now - span, Math.min(now - 5000, ...recent.map((job) => job.started)));
  const x = (time) => 6 + Math.max(0, (time - first) / (now - first)) * (width - 14);

  const parts = [];
  const every = step(now - first);
  for (let back = 0; back <= now - first; back += every) {
    const at = x(now - back);
    parts.push(shape("line", { class: "axis", x1: at, x2: at, y1: 0, y2: height - 16 }));
    if (at > 24) {
      parts.push(shape("text", { class: "tick", x: at, y: height - 3, "text-anchor": back === 0 ? "end" : "middle" }, ago(back)));
    }
  }
  recent.forEach((job, i) => {
    const y = i * rowHeight + 2;
    const from = x(job.started);
    const to = Math.max(from + 2, x(end(job)));
    const bar = shape("g", { class: job.state });
    bar.append(shape("title", {}, `${job.tool}: ${job.outcome}`));
    bar.append(shape("rect", { class: "bar", x: from, y, width: to - from, height: rowHeight - 4, rx: 2 }));
    if (job.ended) bar.append(shape("line", { class: "end", x1: to, x2: to, y1: y, y2: y + rowHeight - 4 }));
    // A name goes where there is more room: right of its start, or left of it.
    const right = from < width * 0.6;
    const room = Math.floor((right ? width - from : from) / 7);
    const name = job.tool.length > room ? job.tool.slice(0, Math.max(1, room - 1)) + "…" : job.tool;
    bar.append(shape("text", { x: right ? from + 4 : from - 4, y: y + 11, "text-anchor": right ? "start" : "end" }, name));
    parts.push(bar);
  });
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.setAttribute("height", height);
  const running = recent.filter((job) => !job.ended).length;
  chart.setAttribute("aria-label", `Timeline of ${recent.length} jobs: ${running} running, ${recent.length - running} ended`);
  chart.replaceChildren(...parts);
}
