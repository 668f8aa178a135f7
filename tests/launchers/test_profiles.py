"""Profiles: the packaged ones are whole, and a wrong one says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from launchers.simulated.profile import PROFILES, Profile, load_profile, profile_names


def test_packaged_profiles_load_under_their_own_names() -> None:
    assert profile_names() == ("kimi-k2.5-8x-rtx-pro-6000", "spec-wins", "tiny")
    for name in profile_names():
        assert load_profile(name).name == name


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(ValueError, match=r"'kimi-k2.5-rtx-pro'.*Did you mean 'kimi-k2.5-8x-rtx-pro-6000'") as info:
        load_profile("kimi-k2.5-rtx-pro")
    assert "spec-wins, tiny" in str(info.value)
    with pytest.raises(ValueError, match="Known are"):
        load_profile("zzz")


def test_a_file_is_a_profile_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((PROFILES / "tiny.yaml").read_text().replace("name: tiny", "name: mine"))
    assert load_profile(str(path)).name == "mine"


def test_a_fault_of_a_profile_is_read(tmp_path: Path) -> None:
    path = tmp_path / "faulty.yaml"
    path.write_text((PROFILES / "tiny.yaml").read_text() + "\nfault: {kind: slow_load, seconds: 3}\n")
    fault = load_profile(str(path)).fault
    assert fault is not None
    assert fault.kind == "slow_load"


def loaded() -> dict[str, Any]:
    values = yaml.safe_load((PROFILES / "tiny.yaml").read_text())
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("engine", {"kv_token": 5}, "kv_token"),
        ("compute", {"token_s": -1.0}, "token_s"),
        ("compute", {"experts": 4, "experts_per_token": 8}, "8 experts per token of 4"),
        ("communication", {"protocols": {"LL": {"latency_s": 1, "bandwidth_gb_s": 1}}}, "protocols has no 'auto'"),
        ("communication", {"algorithms": {"auto": {}, "Rign": {}}}, "algorithms knows no 'Rign'"),
    ],
)
def test_a_wrong_profile_names_what_is_wrong(
    tmp_path: Path, section: str, values: dict[str, Any], message: str
) -> None:
    whole = loaded()
    whole[section] |= values
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(whole))
    with pytest.raises(ValueError, match=message) as info:
        load_profile(str(path))
    assert str(path) in str(info.value)


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="no mapping"):
        load_profile(str(path))


def test_a_profile_is_frozen() -> None:
    profile: Profile = load_profile("tiny")
    with pytest.raises(ValueError, match="frozen"):
        profile.name = "other"  # type: ignore[misc]


def test_every_constant_of_the_kimi_profile_has_its_source_beside_it() -> None:
    text = (PROFILES / "kimi-k2.5-8x-rtx-pro-6000.yaml").read_text()
    body = text[text.index("compute:") : text.index("drafters:")]
    constants = [line for line in body.splitlines() if line.startswith("  ") and ": {}" not in line]
    uncommented = [
        line
        for before, line in zip(["", *constants], constants, strict=False)
        if "#" not in line and not before.strip().startswith("#") and not line.rstrip().endswith(":")
    ]
    assert uncommented == []
