"""Databases with WikiGR's own tables: opened read-only, answered from, and what is not used is named."""

from __future__ import annotations

import asyncio

import ladybug
import pytest

from resift.agent import KnowledgeGraphAgent
from resift.errors import StoreError
from tests.agent.small import WordEmbedder

SECTIONS = {
    ("Bee", "Introduction"): "A bee makes honey from blossoms. A hive holds 40,000 bees.",
    ("Bee", "Enemies"): "The Varroa mite weakens a colony within two years.",
    ("Honey", "Introduction"): "Honey never spoils, because it holds very little water.",
    ("Apple tree", ""): "The apple tree blossoms in May.",
}


def wikigr_database(path, *, number="DOUBLE", links=True):
    """Write a database with the tables that WikiGR's builder makes."""
    database = ladybug.Database(str(path))
    connection = ladybug.Connection(database)
    statements = [
        "CREATE NODE TABLE Article(title STRING, category STRING, word_count INT32, expansion_state STRING, "
        "expansion_depth INT32, claimed_at TIMESTAMP, processed_at TIMESTAMP, retry_count INT32, "
        "PRIMARY KEY(title))",
        "CREATE NODE TABLE Section(section_id STRING, title STRING, content STRING, "
        f"embedding {number}[64], level INT32, word_count INT32, PRIMARY KEY(section_id))",
        "CREATE NODE TABLE Category(name STRING, article_count INT32, PRIMARY KEY(name))",
        "CREATE NODE TABLE Entity(entity_id STRING, name STRING, type STRING, description STRING, "
        "PRIMARY KEY(entity_id))",
        "CREATE REL TABLE HAS_SECTION(FROM Article TO Section, section_index INT32)",
        "CREATE REL TABLE HAS_ENTITY(FROM Article TO Entity)",
    ]
    if links:
        statements.append("CREATE REL TABLE LINKS_TO(FROM Article TO Article, link_type STRING)")
    for statement in statements:
        connection.execute(statement)
    vectors = asyncio.run(WordEmbedder().embed(list(SECTIONS.values()), kind="document"))
    for title in dict.fromkeys(title for title, _ in SECTIONS):
        connection.execute("CREATE (:Article {title: $title, category: 'Nature'})", {"title": title})
    for i, ((article, title), content) in enumerate(SECTIONS.items()):
        connection.execute(
            "MATCH (a:Article {title: $article}) CREATE (a)-[:HAS_SECTION {section_index: $i}]->"
            "(:Section {section_id: $id, title: $title, content: $content, "
            f"embedding: CAST($vector, '{number}[64]'), level: 2}})",
            {
                "article": article,
                "i": i,
                "id": f"{article}#{i}",
                "title": title,
                "content": content,
                "vector": [3 * float(value) for value in vectors[i]],
            },
        )
    if links:
        for one, other in (("Bee", "Honey"), ("Bee", "Apple tree"), ("Honey", "Apple tree")):
            connection.execute(
                "MATCH (a:Article {title: $one}), (b:Article {title: $other}) "
                "CREATE (a)-[:LINKS_TO {link_type: 'internal'}]->(b)",
                {"one": one, "other": other},
            )
    connection.close()
    database.close()
    return path


@pytest.mark.parametrize("number", ["DOUBLE", "FLOAT"])
def test_a_wikigr_database_can_be_queried(tmp_path, number):
    """Sections are found by their vectors, links are followed, and the file is not changed."""
    path = wikigr_database(tmp_path / "wikigr.db", number=number)
    before = path.read_bytes()
    with KnowledgeGraphAgent(path, embedder=WordEmbedder()) as agent:
        assert agent.semantic_search("honey from blossoms", 1)[0].score <= 1.001
        answer = agent.query("How many bees does a hive hold?")
        assert agent.pack.info().links == 3
        assert agent.pack.neighbors(["Honey"]) == [("Honey", "Apple tree"), ("Honey", "Bee")]
    assert answer["found"]
    assert "40,000 bees" in answer["answer"]
    assert answer["sources"][0]["heading"] == "Bee › Introduction"
    assert path.read_bytes() == before


def test_unused_tables_are_reported(tmp_path):
    """Tables without a place here, and missing links, are in `unmapped` and in the notes of an answer."""
    path = wikigr_database(tmp_path / "wikigr.db", links=False)
    with KnowledgeGraphAgent(path, embedder=WordEmbedder()) as agent:
        named = " ".join(agent.unmapped)
        answer = agent.query("How many bees does a hive hold?")
    assert all(table in named for table in ("Category", "Entity", "HAS_ENTITY", "LINKS_TO"))
    assert any("Category" in note for note in answer["notes"])


def test_a_pack_folder_is_opened_by_its_database(tmp_path):
    """A folder with pack.db and a manifest, as WikiGR installs packs; without an embedder, by words."""
    wikigr_database(tmp_path / "pack.db")
    (tmp_path / "manifest.json").write_text('{"name": "nature"}')
    with KnowledgeGraphAgent(tmp_path) as agent:
        answer = agent.query("How many bees does a hive hold?")
    assert "40,000 bees" in answer["answer"]
    assert answer["degraded"]


def test_other_graph_databases_are_refused(tmp_path):
    """The same table names with other columns: the missing ones are named."""
    database = ladybug.Database(str(tmp_path / "other.db"))
    connection = ladybug.Connection(database)
    connection.execute("CREATE NODE TABLE Article(title STRING, PRIMARY KEY(title))")
    connection.execute("CREATE NODE TABLE Section(section_id STRING, title STRING, PRIMARY KEY(section_id))")
    connection.execute("CREATE REL TABLE HAS_SECTION(FROM Article TO Section)")
    connection.close()
    database.close()
    with pytest.raises(StoreError, match="embedding"):
        KnowledgeGraphAgent(tmp_path / "other.db")
