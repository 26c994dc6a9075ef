"""The search finds definitions first and usage next; a reading never leaves the tree."""

import json
import os
import string
from pathlib import Path

import pytest

from kernelpro.cli import main
from kernelpro.code_search import files, index
from kernelpro.code_search.library import Library
from kernelpro.code_search.settings import CodeSearchSettings
from kernelpro.code_search.symbols import parts, symbols
from kernelpro.errors import CodeSearchError

HEADER = """#pragma once
#define CUTE_HOST_DEVICE __host__ __device__

namespace cute {

template <class Atom, class Layout>
struct TiledCopy : Atom {
  using ThrID = int;
  static constexpr int Rank = 3;
  CUTE_HOST_DEVICE auto get_slice(int thread) const;
};

// make_tiled_copy( in a comment is no definition
template <class... Args>
CUTE_HOST_DEVICE constexpr
auto
make_tiled_copy(Copy_Atom<Args...> const& copy_atom)
{
  if (copy_atom.empty()) { return fallback(copy_atom); }
  return TiledCopy<Args...>{};
}

}  // namespace cute
"""
EXAMPLE = """// how it is used
int main() {
  auto copy = cute::make_tiled_copy(atom);
}
"""
TREE = {
    "include/cute/atom/copy_atom.hpp": HEADER,
    "include/cute/detail/copy.hpp": "struct Hidden {\n};\n",
    "examples/cute/use.cu": EXAMPLE,
    "test/unit/copy.cpp": EXAMPLE,
    "tools/library/copy.cu": EXAMPLE,
    "docs/layouts.md": "# Layouts\n\nA swizzle avoids bank conflicts of shared memory.\n",
    "python/layout.py": "class Layout:\n    def compose(self):\n        pass\n",
    "include/big.hpp": "// x\n" * 1000,
    "build/skipped.hpp": "struct Skipped {\n};\n",
    "notes.bin": "no source",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small tree of sources, with a secret beside it."""
    monkeypatch.setenv("KERNELPRO_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "tree"
    for path, text in TREE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (tmp_path / "secret.hpp").write_text("secret")
    return root


@pytest.fixture
def library(tree):
    with Library(CodeSearchSettings(root=str(tree), file_bytes=4096)) as opened:
        yield opened


def paths(library, query):
    return [hit.path for hit in library.search(query)]


def test_a_definition_in_a_header_comes_first_then_examples_tests_and_tools(library):
    hits = library.search("make_tiled_copy")
    assert [hit.path for hit in hits] == [
        "include/cute/atom/copy_atom.hpp",
        "examples/cute/use.cu",
        "test/unit/copy.cpp",
        "tools/library/copy.cu",
    ]
    assert [hit.role for hit in hits] == ["header", "example", "test", "tool"]
    assert (hits[0].symbol, hits[1].symbol) == ("make_tiled_copy", "")
    assert "make_tiled_copy(Copy_Atom" in hits[0].snippet
    assert hits[0].snippet.splitlines() == HEADER.splitlines()[hits[0].first - 1 : hits[0].last]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("tiledcopy", "include/cute/atom/copy_atom.hpp"),  # whatever the case
        ("tiled copy", "include/cute/atom/copy_atom.hpp"),  # words of a name
        ("swizzle bank conflicts", "docs/layouts.md"),
        ("Layout.compose", "python/layout.py"),
        ("swizzle nosuchword", "docs/layouts.md"),  # some of the words where none has all
        ('NEAR("swizzle" OR conflicts*) -"x', "docs/layouts.md"),  # no syntax of the index's own
    ],
)
def test_queries_find_symbols_and_text(library, query, first):
    assert paths(library, query)[0] == first


def test_what_is_not_searched_is_not_found(library):
    assert paths(library, "Skipped") == []
    assert paths(library, "nosuchword") == []
    for empty in ("", " .,:() ", "_", "\0"):
        with pytest.raises(CodeSearchError, match="a query needs a word or name"):
            library.search(empty)
    assert len(library.search("copy " * 5000)) > 0


def test_symbols_are_those_that_a_file_defines():
    found = {(s.name, s.kind, s.line) for s in symbols("a.hpp", HEADER)}
    assert found == {
        ("CUTE_HOST_DEVICE", "macro", 2),
        ("TiledCopy", "type", 7),
        ("ThrID", "alias", 8),
        ("Rank", "constant", 9),
        ("get_slice", "function", 10),
        ("make_tiled_copy", "function", 17),
    }
    assert parts("SM90_TMA_LOAD") == ["sm", "90", "tma", "load"]
    assert parts("TiledMma") == ["tiled", "mma"]


def test_the_index_is_made_once_and_anew_when_the_tree_changed(tree):
    settings = CodeSearchSettings(root=str(tree), recheck_s=0.0)
    with Library(settings) as opened:
        opened.search("copy")
        made = index.place(opened.root)
        before = made.stat().st_ino
        opened.search("copy")
        assert made.stat().st_ino == before
        (tree / "include/new.hpp").write_text("struct BrandNew {\n};\n")
        assert opened.search("BrandNew")[0].path == "include/new.hpp"
        assert made.stat().st_ino != before
        (tree / "include/new.hpp").unlink()
        assert opened.search("BrandNew") == []
    made.write_bytes(b"no index")
    with Library(settings) as opened:
        assert opened.search("TiledCopy")
    assert [file.name for file in made.parent.iterdir()] == [made.name]


def test_a_tree_tells_its_commit_or_version(tree):
    assert files.version(tree) == ""
    header = tree / "include/cutlass/version.h"
    header.parent.mkdir()
    header.write_text("".join(f"#define CUTLASS_{p} 4\n" for p in ("MAJOR", "MINOR", "PATCH")))
    assert files.version(tree) == "CUTLASS 4.4.4"
    (tree / ".git").mkdir()
    (tree / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tree / ".git/packed-refs").write_text(f"# pack-refs\n{'ab' * 20} refs/heads/main\n")
    assert files.version(tree) == "commit abababababab"


def test_reading_gives_lines_and_says_how_many_there_are(library, tree):
    whole = library.read("include/cute/atom/copy_atom.hpp")
    assert whole.text == HEADER.rstrip()
    some = library.read("include/cute/atom/copy_atom.hpp", 7, 8)
    assert (some.text, some.lines) == ("\n".join(HEADER.splitlines()[6:8]), 23)
    short = CodeSearchSettings(root=str(tree), read_lines=3, read_characters=40, file_bytes=4096)
    part = Library(short).read("include/cute/atom/copy_atom.hpp", 2)
    assert (part.first, part.last) == (2, 2)
    (tree / "empty.hpp").touch()
    assert library.read("empty.hpp").text == ""
    for lines in ((0, None), (5, 4), (24, None)):
        with pytest.raises(CodeSearchError, match="line"):
            library.read("include/cute/atom/copy_atom.hpp", *lines)


def test_nothing_outside_the_tree_is_read_whatever_the_path(library, tree, tmp_path):
    outside = tmp_path / "secret.hpp"
    (tree / "out.hpp").symlink_to(outside)
    (tree / "folder").symlink_to(tmp_path)
    (tree / "loop.hpp").symlink_to("loop.hpp")
    (tree / "device.hpp").symlink_to("/dev/zero")
    (tree / "inside.hpp").symlink_to("include/cute/atom/copy_atom.hpp")
    (tree / "image.hpp").write_bytes(b"\x89\0\0")
    os.mkfifo(tree / "pipe.hpp")
    for path in (
        "../secret.hpp",
        "include/../../secret.hpp",
        str(outside),
        str(tree / "include/big.hpp"),
        "/dev/zero",
        "/proc/self/environ",
        "out.hpp",
        "folder/secret.hpp",
        "loop.hpp",
        "device.hpp",
        "pipe.hpp",
        "image.hpp",
        "include",
        ".",
        "",
        "nosuch.hpp",
        "include/cute/atom/copy_atom.hpp\0.txt",
        "a" * 5000,
        "include/big.hpp",  # too large
    ):
        with pytest.raises(CodeSearchError) as refused:
            library.read(path)
        assert "secret" not in str(refused.value).replace(repr(path)[:200], "")
        assert "\n" not in str(refused.value)
    assert library.read("inside.hpp").text == HEADER.rstrip()
    assert not {hit.path for hit in library.search("secret")}  # links are not indexed either


def test_no_path_of_any_shape_reads_the_secret(library, tree):
    hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis: pip install -e .[dev]")
    from hypothesis import strategies as st

    piece = st.sampled_from(["..", ".", "", "include", "secret.hpp", "~", "%2e%2e", "\\.."])
    path = st.lists(piece | st.text(string.printable, max_size=3), max_size=6).map("/".join)

    @hypothesis.settings(max_examples=100, deadline=None)
    @hypothesis.given(path)
    def tried(one):
        try:
            text = library.read(one).text
        except CodeSearchError:
            return
        assert text != "secret"
        assert Path(os.path.realpath(tree / one)).is_relative_to(tree)

    tried()


def test_commands_search_and_read(tree, capsys, monkeypatch):
    monkeypatch.setenv("KERNELPRO_CODE_SEARCH_ROOT", str(tree))
    assert main(["code", "search", "make_tiled_copy", "--most", "1"]) == 0
    assert capsys.readouterr().out.startswith(
        "include/cute/atom/copy_atom.hpp:15-23 (header, make_tiled_copy)\n    CUTE_HOST_DEVICE"
    )
    assert main(["code", "search", "nosuchword", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["hits"] == []
    assert main(["code", "read", "include/cute/atom/copy_atom.hpp:7-7"]) == 0
    assert capsys.readouterr().out == (
        "struct TiledCopy : Atom {\n"
        "[lines 7-7 of 23; read on from include/cute/atom/copy_atom.hpp:8]\n"
    )
    for arguments, said in (
        (["code"], "needs search QUERY or read PATH"),
        (["code", "read", "../secret.hpp"], "the tree has no file"),
        (["code", "search", "x", "--root", str(tree / "nosuch")], "is no folder; name one"),
        (["code", "search", "x", "--root", str(tree / "build")], None),
    ):
        assert main(arguments) == (2 if said else 1)
        error = capsys.readouterr().err
        assert (said or "") in error
        assert error.count("\n") == (1 if said else 0)
    monkeypatch.setenv("KERNELPRO_CODE_SEARCH_MOST", "0")
    assert main(["code", "search", "x"]) == 2
    assert "most must be 1 or more" in capsys.readouterr().err
