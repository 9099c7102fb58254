"""One self-contained page from one JSON report: a matrix that opens to cells. Works from disk, offline."""

from __future__ import annotations

import json
from typing import Any

from . import report

__all__ = ["page"]

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#6a737d;--line:#d8dde3;--pass:#1a7f37;--fail:#cf222e;
--unsupported:#8a5a00;--xfail:#656d76;--panel:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e3e8ee;--soft:#8b949e;--line:#2c333b;--pass:#3fb950;--fail:#f85149;
--unsupported:#d29922;--xfail:#8b949e;--panel:#171c23}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.2rem}h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
.soft{color:var(--soft)}.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{padding:.3rem .55rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap;vertical-align:top}
td.text{white-space:normal;min-width:16rem;overflow-wrap:anywhere}th{font-weight:600}
button.cell{font:inherit;color:inherit;background:none;border:1px solid transparent;border-left:4px solid var(--pass);
padding:.2rem .5rem;cursor:pointer;border-radius:2px;width:100%;text-align:left}
button.cell:hover,button.cell:focus-visible{border-color:var(--soft);outline:none}
button.cell.fail{border-left-color:var(--fail);font-weight:600}button.cell.unsupported{border-left-color:var(--unsupported)}
button.cell.xfail{border-left-color:var(--xfail)}button.cell[aria-expanded=true]{background:var(--panel)}
.filters{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}.filters input,.filters select{font:inherit;padding:.25rem .4rem;
background:var(--panel);color:inherit;border:1px solid var(--line);border-radius:3px;max-width:100%}
.o-pass{color:var(--pass)}.o-fail,.o-crash,.o-xpass{color:var(--fail)}.o-unsupported{color:var(--unsupported)}
.o-xfail,.o-unavailable{color:var(--xfail)}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
#matrix th:first-child{position:sticky;left:0;background:var(--bg)}#matrix th{vertical-align:middle}
@media(max-width:44rem){#detail tr:first-child{display:none}#detail tr{display:block;border-bottom:1px solid var(--line);padding:.3rem 0}
#detail td{display:inline-block;border:0;padding:0 .7rem 0 0;white-space:normal;overflow-wrap:anywhere}#detail td.text{display:block;min-width:0}
#detail td[data-h]::before{content:attr(data-h)" ";color:var(--soft)}#detail td:empty{display:none}}
"""

_SCRIPT = """
const report=JSON.parse(document.getElementById('data').textContent),cells=report.cells;
const bad=new Set(['fail','crash','unsupported','xpass']),by=id=>document.getElementById(id);
const uniq=f=>[...new Set(cells.map(f))].sort(),family=c=>c.case.split('/')[0];
const el=(tag,text,cls)=>{const e=document.createElement(tag);if(text!==undefined)e.textContent=text;if(cls)e.className=cls;return e};
for(const[id,values]of[['transform',uniq(c=>c.transform)],['dtype',uniq(c=>c.dtype)],['outcome',uniq(c=>c.outcome)]])
  for(const v of values)by(id).append(new Option(v,v));
let open=null;
function chosen(){const t=by('transform').value,d=by('dtype').value,o=by('outcome').value,q=by('search').value.toLowerCase();
  return cells.filter(c=>(!t||c.transform===t)&&(!d||c.dtype===d)&&(!o||c.outcome===o)&&(!q||(c.case+' '+c.message).toLowerCase().includes(q)))}
function tone(list){if(list.some(c=>c.outcome==='fail'||c.outcome==='crash'||c.outcome==='xpass'))return'fail';
  if(list.some(c=>c.outcome==='unsupported'))return'unsupported';return list.some(c=>c.outcome!=='pass')?'xfail':'pass'}
function detail(list,title){const box=by('detail');box.replaceChildren();if(!list)return;
  box.append(el('h2',title));const wrap=el('div',undefined,'wide'),table=el('table'),head=el('tr');
  for(const h of['case','transform','dtype','outcome','worst ulp','bar','input','message'])head.append(el('th',h));table.append(head);
  const order={fail:0,crash:0,xpass:0,unsupported:1,xfail:2,pass:3};
  list.sort((a,b)=>order[a.outcome]-order[b.outcome]||(b.ulp||0)-(a.ulp||0));
  for(const c of list.slice(0,400)){const row=el('tr');for(const k of['case','transform','dtype'])row.append(el('td',c[k]));
    row.append(el('td',c.outcome,'o-'+c.outcome),el('td',c.ulp==null?'':Number(c.ulp).toPrecision(3)),el('td',c.bar==null?'':c.bar),el('td',c.input||'','text'),el('td',c.message,'text'));
    for(const[k,h]of[[4,'ulp'],[5,'bar'],[6,'input']])row.children[k].dataset.h=h;table.append(row)}
  wrap.append(table);box.append(wrap);if(list.length>400)box.append(el('p','and '+(list.length-400)+' more: narrow the filters','soft'))}
function draw(){const list=chosen(),names=uniq(c=>c.backend),families=uniq(family),table=el('table'),head=el('tr');
  head.append(el('th','family'));for(const b of names)head.append(el('th',b));table.append(head);
  for(const f of families){const row=el('tr');row.append(el('th',f));
    for(const b of names){const td=el('td'),mine=list.filter(c=>c.backend===b&&family(c)===f);
      if(mine.length){const good=mine.filter(c=>c.outcome==='pass').length,key=f+'|'+b;
        const button=el('button',good===mine.length?String(good):good+' / '+mine.length,'cell '+tone(mine));
        button.type='button';button.dataset.key=key;button.setAttribute('aria-expanded',String(open===key));
        button.onclick=()=>{open=open===key?null:key;draw();const again=document.querySelector('button[data-key="'+key+'"]');if(again)again.focus()};
        td.append(button)}else td.append(el('span','–','soft'));row.append(td)}
    table.append(row)}
  by('matrix').replaceChildren(table);by('count').textContent=list.length+' of '+cells.length+' cells, '+list.filter(c=>bad.has(c.outcome)).length+' failing';
  if(open){const[f,b]=open.split('|');detail(list.filter(c=>c.backend===b&&family(c)===f),f+' on '+b)}else detail(null)}
for(const id of['transform','dtype','outcome','search'])by(id).addEventListener('input',draw);draw();
"""


def _embedded(data: Any) -> str:
    """JSON that may stand inside a script element: no "</", no bare NaN."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return "1e999" if value > 0 else str(value)
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, list) else value

    return json.dumps(plain(data), allow_nan=False).replace("</", "<\\/")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _list(title: str, lines: list[str]) -> str:
    items = "".join(f"<li><code>{_escape(line)}</code></li>" for line in lines)
    return f"<h2>{_escape(title)}</h2><ul>{items}</ul>" if lines else ""


def page(data: dict[str, Any], previous: dict[str, Any] | None = None) -> str:
    """HTML of a report as report.load gives it; `previous`: an older one, whose differences are listed."""
    environment = ", ".join(f"{k} {v}" for k, v in data["environment"].items())
    changes = report.compare(previous["cells"], data["cells"]) if previous else []
    missing = [f"{name}: {reason}" for name, reason in data.get("unavailable", {}).items()]
    selects = "".join(
        f'<select id="{i}" aria-label="{i}"><option value="">every {i}</option></select>'
        for i in ("transform", "dtype", "outcome")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Conformance</title><style>{_STYLE}</style></head><body><main><h1>Conformance</h1>"
        f'<p class="soft">{_escape(environment)}</p>'
        f'<div class="filters"><input id="search" type="search" placeholder="case or message" aria-label="search">{selects}'
        '<span id="count" class="soft"></span></div><div id="matrix" class="wide"></div><section id="detail"></section>'
        f"{_list('Changed since the previous report', changes)}{_list('Not available here', missing)}"
        f"{_list('Limitations that match nothing any more', data.get('stale_limitations', []))}"
        f'</main><script type="application/json" id="data">{_embedded(data)}</script><script>{_SCRIPT}</script></body></html>'
    )
