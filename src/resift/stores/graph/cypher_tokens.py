"""Cypher text to tokens, and the words, procedures and functions that the guard knows.

Text that two engines could read differently is refused here. The lists come from openCypher 9, the Neo4j 5
manual, the Ladybug catalogue (`CALL show_functions()`), and the Memgraph and FalkorDB manuals. Names that are
not listed are refused.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from resift.errors import UnsafeCypherError

WORD, NAME, STRING, NUMBER, PARAMETER, SYMBOL = "word", "name", "string", "number", "parameter", "symbol"


class Token(NamedTuple):
    """One token: its kind, its text (a name without backticks) and its position."""

    kind: str
    text: str
    start: int

    @property
    def key(self) -> str:
        """The word in capitals, or "" for everything that cannot be a keyword."""
        return self.text.upper() if self.kind == WORD else ""

    def is_(self, *symbols: str) -> bool:
        """Return whether this is one of these symbols."""
        return self.kind == SYMBOL and self.text in symbols


# Possessive quantifiers: an unterminated quote fails at once instead of backtracking.
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]++)
    | (?P<line>//[^\n]*+)
    | (?P<block>/\*(?:[^*]|\*(?!/))*+\*/)
    | (?P<string>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
    | (?P<name>`(?:[^`]|``)*+`)
    | (?P<parameter>\$(?:[A-Za-z0-9_]|[^\x00-\x7f])++|\$`(?:[^`]|``)*+`)
    | (?P<number>0x[0-9a-fA-F]++|0o[0-7]++|(?:[0-9][0-9_]*+(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<word>(?:[A-Za-z_]|[^\x00-\x7f])(?:[A-Za-z0-9_]|[^\x00-\x7f])*+)
    | (?P<symbol>::|:=|\.\.|=~|\+=|\$(?=\()|[()\[\]{}.,:;=<>+\-*/%^|&!])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r"[^\x20-\x7e\t\n\r]")
_JOINERS = "\u200c\u200d"
_UNTERMINATED = (("'", "string"), ('"', "string"), ("`", "backticked name"), ("/*", "comment"))


def tokenize(text: str) -> list[Token]:
    """Return the tokens without spaces and comments; raise UnsafeCypherError for ambiguous characters."""
    for special in _SPECIAL.finditer(text):
        category = unicodedata.category(special[0])
        # Joiners are part of the spelling in strings (Persian, Hindi, emoji), and refused elsewhere below.
        if category in ("Cc", "Cf", "Cs", "Zl", "Zp") and special[0] not in _JOINERS:
            raise make_error(text, special.start(), f"the character U+{ord(special[0]):04X} is invisible")
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            open_kinds = [kind for mark, kind in _UNTERMINATED if text.startswith(mark, position)]
            reason = "a character that has no place outside a string"
            raise make_error(
                text, position, f"a {open_kinds[0]} starts here and does not end" if open_kinds else reason
            )
        kind = str(match.lastgroup)
        _check_token(text, kind, match)
        if kind not in ("space", "line", "block"):
            value = match[0][1:-1].replace("``", "`") if kind == NAME else match[0]
            tokens.append(Token(kind, value, position))
        position = match.end()
    return tokens


def make_error(text: str, position: int, reason: str) -> UnsafeCypherError:
    """Return the error for a position in the text."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return UnsafeCypherError(reason, line=line, column=column)


def _check_token(text: str, kind: str, match: re.Match[str]) -> None:
    """Raise UnsafeCypherError for a token that engines read differently."""
    token, start = match[0], match.start()
    if kind in ("line", "block", NAME):
        for joiner in _JOINERS:
            if joiner in token:
                raise make_error(text, start, f"the character U+{ord(joiner):04X} outside a string")
    if kind == "line":
        # Engines disagree on whether a carriage return alone ends a line.
        alone = re.search(r"\r(?!\n|$)", token)
        if alone or (token.endswith("\r") and match.end() == len(text)):
            raise make_error(text, start, "a carriage return inside a line comment")
    elif kind == "block":
        if "/*" in token[1:]:
            raise make_error(text, start, "a comment inside a comment, which engines end differently")
    elif kind == NAME:
        if len(token) == 2 or "\\`" in token:
            raise make_error(text, start, "a backticked name that is empty or has a backslash before a backtick")
    elif kind in (WORD, PARAMETER) and not token.isascii():
        for offset, char in enumerate(token):
            if not char.isascii() and unicodedata.category(char)[0] not in "LMN":
                raise make_error(text, start + offset, f"the character U+{ord(char):04X} outside a string")
        look_alike = {token.upper(), token.lower().upper(), token.casefold().upper()} & KEYWORDS
        if unicodedata.normalize("NFKC", token) != token or look_alike:
            raise make_error(text, start, "a word with look-alike characters; quote it in backticks")


# Known words


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READ_STARTS = _words("MATCH OPTIONAL WITH UNWIND RETURN CALL")
"""Clauses that may open a statement, a subquery or an arm of UNION."""

CONTINUATIONS = _words("WHERE SKIP LIMIT OFFSET YIELD FILTER LET HINT")
"""Clauses that may follow another and take an expression."""

FORBIDDEN = _words(
    """
    CREATE MERGE SET DELETE DETACH NODETACH REMOVE INSERT FOREACH DROP ALTER RENAME COMMENT LOAD COPY EXPORT
    IMPORT ATTACH INSTALL UNINSTALL UPDATE CHECKPOINT FORCE BEGIN START COMMIT ROLLBACK TRANSACTION
    TRANSACTIONS SHOW TERMINATE USE GRANT DENY REVOKE STOP ENABLE DEALLOCATE REALLOCATE DRYRUN STORAGE DUMP
    FREE LOCK UNLOCK ANALYZE SNAPSHOT RECOVER REGISTER REPLICATION TRIGGER KILL EXECUTE PREPARE
    """
)
"""Clauses that write, reach outside the graph, or administer the server; used in messages."""

INFIX = _words("AND OR XOR IN CONTAINS IS")
PATH_WORDS = _words(
    """SHORTEST WSHORTEST ALL ANY TRAIL ACYCLIC WALK SIMPLE REPEATABLE DIFFERENT ELEMENT ELEMENTS RELATIONSHIP
    RELATIONSHIPS EDGE EDGES PATH PATHS GROUP GROUPS"""
)
KEYWORDS = (
    READ_STARTS
    | CONTINUATIONS
    | FORBIDDEN
    | INFIX
    | _words(
        """ORDER BY UNION ALL AS ASC ASCENDING DESC DESCENDING CASE WHEN THEN ELSE END NOT
        DISTINCT STARTS ENDS
        EXISTS COUNT COLLECT NULL TRUE FALSE USING INDEX SCAN FINISH EXPLAIN PROFILE CYPHER ON"""
    )
)

PREPARSER_OPTIONS = _words(
    """runtime planner updatestrategy replan expressionengine operatorengine interpretedpipesfallback
    connectcomponentsplanner parallelruntimesupport inferschemaparts labelinference"""
)

PROCEDURES = _words(
    """
    show_tables table_info show_connection show_functions show_indexes show_sequences show_macros show_graphs
    show_warnings show_attached_databases show_loaded_extensions show_official_extensions
    show_projected_graphs projected_graph_info db_version catalog_version storage_version current_setting
    storage_info stats_info bm_info fsm_info disk_size_info query_vector_index query_fts_index page_rank pr
    weakly_connected_components wcc strongly_connected_components scc strongly_connected_components_kosaraju
    scc_ko k_core_decomposition kcore louvain spanning_forest sf

    db.labels db.relationshiptypes db.propertykeys db.info db.ping db.indexes db.constraints
    db.schema.visualization db.schema.nodetypeproperties db.schema.reltypeproperties db.meta.stats
    db.index.fulltext.querynodes db.index.fulltext.queryrelationships db.index.fulltext.listavailableanalyzers
    db.index.vector.querynodes db.index.vector.queryrelationships db.idx.fulltext.querynodes
    db.idx.fulltext.queryrelationships db.idx.vector.querynodes db.idx.vector.queryrelationships
    dbms.components dbms.procedures dbms.functions

    apoc.help apoc.meta.schema apoc.meta.stats apoc.meta.data apoc.meta.graph apoc.meta.subgraph
    apoc.meta.nodetypeproperties apoc.meta.reltypeproperties apoc.path.expand apoc.path.expandconfig
    apoc.path.subgraphnodes apoc.path.subgraphall apoc.path.spanningtree apoc.neighbors.tohop
    apoc.neighbors.athop apoc.neighbors.byhop apoc.algo.dijkstra apoc.algo.astar apoc.algo.allsimplepaths

    mg.procedures mg.functions schema.node_type_properties schema.rel_type_properties vector_search.search
    vector_search.show_index_info text_search.search text_search.search_all
    """
)
"""Procedures that only read the graph and its schema. Names are in lower case."""

FUNCTIONS = _words(
    """
    all any none single exists reduce extract filter shortestpath allshortestpaths allreduce avg collect count
    count_if max min percentilecont percentiledisc stdev stdevp sum histogram coalesce nullif ifnull case cast
    typeof type valuetype id elementid labels label keys properties nodes relationships rels length startnode
    endnode start_node end_node internal_id offset rowid cost is_trail is_acyclic degree indegree outdegree
    head last tail size range reverse isempty cardinality values toset abs ceil ceiling floor round sign sqrt
    cbrt exp log ln log2 log10 power pow even factorial gamma lgamma negate rand random e pi sin cos tan cot
    asin acos atan atan2 degrees radians haversin isnan greatest least bitshift_left bitshift_right
    bitwise_and bitwise_or bitwise_xor hash md5 sha256 left right trim btrim ltrim rtrim lpad rpad lower upper
    lcase ucase tolower toupper replace split substring substr char_length character_length normalize concat
    concat_ws contains starts_with ends_with prefix suffix repeat initcap levenshtein string_split str_split
    string_to_array split_part regexp_matches regexp_full_match regexp_replace regexp_extract
    regexp_extract_all regexp_split_to_array list_to_string array_extract encode decode octet_length toboolean
    tobooleanornull tobooleanlist tofloat tofloatornull tofloatlist tointeger tointegerornull tointegerlist
    tostring tostringornull tostringlist to_blob to_bool to_date to_days to_double to_epoch_ms to_float
    to_hours to_int128 to_int16 to_int32 to_int64 to_int8 to_interval to_microseconds to_milliseconds
    to_minutes to_months to_seconds to_serial to_string to_timestamp to_uint128 to_uint16 to_uint32 to_uint64
    to_uint8 to_uuid to_years blob string uuid gen_random_uuid randomuuid date datetime time localtime
    localdatetime timestamp duration interval current_date current_timestamp century date_part datepart
    date_trunc datetrunc dayname monthname last_day make_date epoch_ms time_bucket date.truncate
    date.statement date.transaction date.realtime datetime.truncate datetime.statement datetime.transaction
    datetime.realtime datetime.fromepoch datetime.fromepochmillis time.truncate time.statement
    time.transaction time.realtime localtime.truncate localtime.statement localtime.transaction
    localtime.realtime localdatetime.truncate localdatetime.statement localdatetime.transaction
    localdatetime.realtime duration.between duration.indays duration.inmonths duration.inseconds point
    distance point.distance point.withinbbox vector vector.similarity.cosine vector.similarity.euclidean
    vector_distance vector_norm vector_dimension_count array_append array_cat array_concat array_contains
    array_cosine_similarity array_cross_product array_distance array_dot_product array_has array_indexof
    array_inner_product array_position array_prepend array_push_back array_push_front array_slice
    array_squared_distance array_value list_any_value list_append list_cat list_concat list_contains
    list_creation list_distinct list_element list_extract list_filter list_has list_has_all list_has_any
    list_indexof list_max list_min list_position list_prepend list_product list_reduce list_reverse
    list_reverse_sort list_slice list_sort list_sum list_transform list_unique element_at map map_extract
    map_keys map_values struct struct_extract struct_pack union union_extract union_tag union_value decimal
    constant_or_null currval error json to_json json_extract json_object json_array json_array_length
    json_contains json_keys json_structure json_type json_valid json_quote json_merge_patch array_to_json
    row_to_json cast_to_json stem equals not_equals greater_than greater_than_equals less_than
    less_than_equals wshortest apoc.text.join apoc.text.split apoc.text.replace apoc.text.clean
    apoc.text.distance apoc.text.levenshteindistance apoc.text.levenshteinsimilarity
    apoc.text.jarowinklerdistance apoc.text.sorensendicesimilarity apoc.text.capitalize apoc.text.regexgroups
    apoc.coll.toset apoc.coll.sort apoc.coll.sum apoc.coll.avg apoc.coll.max apoc.coll.min apoc.coll.contains
    apoc.coll.intersection apoc.coll.union apoc.coll.subtract apoc.coll.flatten apoc.coll.frequencies
    apoc.map.merge apoc.map.frompairs apoc.map.fromlists apoc.map.removekey apoc.map.removekeys
    apoc.map.submap apoc.convert.tojson apoc.convert.fromjsonmap apoc.convert.fromjsonlist apoc.convert.tomap
    apoc.date.format apoc.date.parse apoc.date.convert apoc.agg.first apoc.agg.last apoc.agg.nth
    apoc.agg.statistics apoc.node.degree apoc.node.labels apoc.meta.cypher.type apoc.meta.cypher.types
    """
)
"""Functions without side effects: none writes, sleeps, reads a file or calls a server. In lower case."""
