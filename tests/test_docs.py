"""What README and docs/ say is so: their commands run, their snippets work, their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from launchers import errors
from orchestrator.schema.markdown import slug
from orchestrator.yaml_source import parse_sweep

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Failure classes that no launcher raises: the orchestrator's own.
OWN_KINDS = {"requests_failed", "interrupted", "node_lost", "orchestrator_error"}
SMALL = "{study: s, model: m, space: {}, score: {metric: output_tokens_per_s, concurrency: 128}}"


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    language: str
    text: str
    #: Why it is not run; None where it is.
    exempt: str | None

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        begun: int | None = None
        for number, line in enumerate(lines):
            if not line.startswith("```"):
                continue
            if begun is None:
                begun = number
                continue
            before = lines[begun - 1] if begun else ""
            why = re.fullmatch(r"<!-- (?:not run|ci): (.+) -->", before)
            language = lines[begun][3:].strip()
            yield Block(page, begun + 1, language, "\n".join(lines[begun + 1 : number]) + "\n", why and why[1])
            begun = None
        assert begun is None, f"{page.name}: a block is not closed"


BLOCKS = list(blocks())


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def named(block: Block) -> str:
    return block.name


@pytest.fixture(scope="session")
def work_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader's clone: shipped spaces, the environment, and a study of the quick start."""
    place = tmp_path_factory.mktemp("clone")
    (place / "search_spaces").symlink_to(ROOT / "search_spaces")
    (place / ".venv").symlink_to(Path(sys.executable).parents[1])
    space = place / "small.yaml"
    text = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    # The same study, over in seconds.
    text = re.sub(r"concurrency: \[.*\]", "concurrency: [1, 32]", text)
    text = text.replace("output_tokens: 32", "output_tokens: 8")
    text = text.replace("profile: tiny}", "profile: tiny, startup_speedup: 1000}")
    level = "level: {requests_per_user: 1, min_s: 0.2, max_s: 0.4, max_client_lag_ms: 10000}"
    text = re.sub(r"level: \{.*\}", level, text) + "repeats: {share: 0}\n"
    space.write_text(text)
    sweep = [sys.executable, "-m", "orchestrator.sweep", str(space), "--trials", "2"]
    done = subprocess.run(sweep, cwd=place, env=environment(), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (place / "results" / "nccl").symlink_to("quickstart")
    return place


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("block", [b for b in of("bash") if b.exempt is None], ids=named)
def test_commands_run(block: Block, work_folder: Path) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=work_folder,
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block.name}\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("block", of("python"), ids=named)
def test_snippets_work(block: Block, work_folder: Path) -> None:
    assert block.exempt is None, "Python snippets are all run"
    code = [sys.executable, "-W", "error::FutureWarning", "-c", block.text]
    done = subprocess.run(
        code, cwd=work_folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{block.name}\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("block", of("yaml"), ids=named)
def test_yaml_is_taken(block: Block) -> None:
    data = yaml.safe_load(block.text)
    if data is None:
        assert block.text.startswith("# yaml-language-server:")
        return
    # A fragment stands for a part of a file.
    whole = block.text if "study" in data else yaml.safe_dump({**yaml.safe_load(SMALL), **data})
    parse_sweep(whole, block.name)


def test_few_commands_are_not_run_and_each_says_why() -> None:
    exempt = [block for block in of("bash") if block.exempt is not None]
    assert all(len(block.exempt or "") > 3 for block in exempt)
    assert len(exempt) < len(of("bash")) / 1.5
    known = {"bash", "python", "yaml", "mermaid", ""}
    assert {block.language for block in BLOCKS} <= known


def anchors(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {slug(re.sub(r"[`*]", "", heading)) for heading in re.findall(r"(?m)^#+ (.+)$", text)}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_every_page_is_reached_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f"docs/{page.name}" not in text] == []


def every_kind(base: type[errors.LaunchError] = errors.LaunchError) -> Iterator[type[errors.LaunchError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from every_kind(kind)


def test_each_failure_class_has_its_section_with_its_remedy() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"(?ms)^### ([a-z_]+)\n\nRemedy: ([^.,]+)", text))
    expected = {kind.kind: str(kind.remedy) for kind in every_kind()}
    assert {kind: sections.get(kind) for kind in expected} == expected
    assert set(sections) - set(expected) == OWN_KINDS
    named_in_code = set()
    for path in (ROOT / "orchestrator").glob("*.py"):
        named_in_code |= set(re.findall(r'Outcome\("failed", "([a-z_]+)"', path.read_text(encoding="utf-8")))
        named_in_code |= set(re.findall(r'else "(requests_failed)"', path.read_text(encoding="utf-8")))
    assert named_in_code == OWN_KINDS


def test_the_files_of_a_study_are_told(work_folder: Path) -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    hidden = {"study.id", "study.lock", "prompts.sha256"}
    for entry in (work_folder / "results" / "quickstart").iterdir():
        assert entry.name in hidden or f"`{entry.name}" in text, entry.name
