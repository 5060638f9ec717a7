"""The page's style sheet: light and dark, phone to wide screen, screen and paper."""

from __future__ import annotations

from parashot.report.palette import DARK, LIGHT, css_variables

EXTRA_LIGHT = {"tint": "#f4f6f8", "yes": "#00664b", "no": "#a34400"}
EXTRA_DARK = {"tint": "#1d232a", "yes": "#4fd3a7", "no": "#f2a65a"}

RULES = """
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
  font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif}
main,nav>ul,footer{max-width:1120px;margin:0 auto;padding:0 20px}
h1{font-size:1.05rem;font-weight:600;color:var(--muted);margin:28px 0 6px;scroll-margin-top:56px}
h2{font-size:1.45rem;line-height:1.25;margin:52px 0 8px;scroll-margin-top:56px}
h3,figure h2{font-size:1.02rem;line-height:inherit;margin:0 0 4px}
p{max-width:72ch;margin:.6em 0}
li{max-width:76ch;margin:.35em 0}
a{color:var(--blue)}
a:focus-visible,.scroll:focus-visible,pre:focus-visible{outline:3px solid var(--blue);outline-offset:2px}

.skip{position:absolute;left:-9999px}
.skip:focus{left:12px;top:8px;background:var(--paper);padding:6px 12px;z-index:9}
nav{position:sticky;top:0;background:var(--paper);border-bottom:1px solid var(--line);z-index:5}
nav>ul{display:flex;gap:2px 18px;list-style:none;overflow-x:auto;padding-top:9px;padding-bottom:9px}
nav li{margin:0}
nav a{color:var(--ink);text-decoration:none;white-space:nowrap;font-size:.93rem}
nav a:hover{text-decoration:underline}

.answer{font-size:clamp(1.3rem,2.6vw,1.8rem);line-height:1.3;font-weight:650;max-width:48ch;margin:0 0 14px}
.note{border-left:4px solid var(--vermillion);padding:6px 14px;margin:12px 0;background:var(--tint);
  max-width:100ch}
.note p{margin:.2em 0;max-width:none}
.first{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:28px;align-items:start;
  margin-top:24px}
.cards{display:grid;gap:14px;grid-template-columns:repeat(2,minmax(0,1fr))}
.card{grid-column:span 2}
.card:nth-child(n+5){grid-column:span 1}
.card{border:1px solid var(--line);border-radius:10px;padding:14px 18px}
.card p{margin:.3em 0}
.card .choice{font-size:1.3rem;font-weight:650;line-height:1.25}
.card .topic{color:var(--muted);font-size:.9rem;margin:0}

.figures{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:26px 32px;margin:18px 0}
figure{margin:0;min-width:0;break-inside:avoid}
figure svg{display:block;width:100%;height:auto;max-width:560px}
figure svg text{font-family:inherit!important}
figcaption{color:var(--muted);font-size:.88rem;line-height:1.45;max-width:60ch}

.table{margin:20px 0}
.scroll{overflow-x:auto}
.narrow{max-width:560px}
table{border-collapse:collapse;width:100%;font-size:.92rem;line-height:1.4}
.caption{color:var(--muted);margin:0 0 6px;font-size:.9rem;max-width:none}
.download{margin-left:6px}
th,td{padding:7px 14px 7px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
th{font-weight:600;border-bottom:2px solid var(--muted);vertical-align:bottom}
.number{text-align:right;font-variant-numeric:tabular-nums}
td.number,td strong{white-space:nowrap}
td small{display:block;color:var(--muted);font-size:.84em;line-height:1.35;min-width:7em}
.number small{min-width:0}

.badge{display:inline-block;border:1px solid currentColor;border-radius:99px;padding:0 9px;font-size:.86em;
  white-space:nowrap;font-weight:600}
.badge.yes{color:var(--yes)}
.badge.no{color:var(--no)}
.badge.open,.badge.none{color:var(--muted)}
.tally{display:flex;flex-wrap:wrap;gap:6px 20px}

dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 18px;margin:14px 0}
dt{color:var(--muted)}
dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--tint);padding:14px;overflow:auto;font-size:.82rem;line-height:1.45;max-height:26rem;
  border-radius:8px}
footer{color:var(--muted);font-size:.9rem;margin-top:56px;padding-bottom:40px}

@media screen and (max-width:760px){
  .first,.figures,.cards{grid-template-columns:minmax(0,1fr)}
  .card:nth-child(n){grid-column:auto}
  main,nav>ul,footer{padding-left:16px;padding-right:16px}
  h2{margin-top:40px}
  dl{grid-template-columns:minmax(0,1fr);gap:0}
  dd{margin-bottom:8px}
  table.stacked thead{position:absolute;left:-9999px}
  table.stacked,table.stacked tbody,table.stacked tr,table.stacked td{display:block}
  table.stacked tr{border:1px solid var(--line);border-radius:10px;padding:8px 14px;margin:0 0 12px}
  table.stacked td{border:0;padding:4px 0}
  table.stacked td::before{content:attr(data-label);display:block;color:var(--muted);font-size:.82em}
  table.stacked td:first-child::before{content:none}
}

@media print{
  nav,.skip,.download{display:none}
  body{font-size:10pt}
  main{padding:0}
  h2{margin-top:26px}
  .first,.figures{gap:14px 20px}
  .card{padding:8px 12px}
  .scroll{overflow:visible}
  table{font-size:8pt}
  th,td{padding:4px 7px 4px 0}
  pre{max-height:none;white-space:pre-wrap}
  h2,h3,.caption{break-after:avoid}
  tr,.card,.note{break-inside:avoid}
}
"""


def style_sheet() -> str:
    """The whole style sheet; dark where the reader's system is dark, light on paper."""
    light, dark = css_variables(LIGHT | EXTRA_LIGHT), css_variables(DARK | EXTRA_DARK)
    screen = f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f":root{{color-scheme:light dark;{light}}}{screen}{RULES}"
