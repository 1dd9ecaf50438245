"""The transcripts of this folder: each is run, and an incorrect one fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.store import new_database
from tests.helpers.transcript import Mismatch, TranscriptRunner

FOLDER = Path(__file__).parent
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[TranscriptRunner]:
    stage = TranscriptRunner(new_database(tmp_path))
    yield stage
    stage.close()


def test_transcripts_exist() -> None:
    assert len(TRANSCRIPTS) >= 12


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(stage: TranscriptRunner, path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# "), "it begins with a title"
    stage.run(text)


PING = """
device pump1
pump1/fw sends:
    <iq type='get' id='1' to='gw.example'><ping xmlns='urn:xmpp:ping'/></iq>
"""
PONG = """
pump1/fw receives:
    <iq type='result' id='1' from='gw.example' to='pump1@gw.example/fw'/>
"""


def test_a_correct_transcript_passes(stage: TranscriptRunner) -> None:
    stage.run(PING + PONG + "pump1/fw receives nothing")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (PING, "at the end, pump1@gw.example/fw has also received"),
        (PING + "pump1/fw receives nothing", "it has received"),
        (PING + PONG + PONG, "it has received nothing"),
        (PING + PONG.replace("id='1'", "id='2'"), "has id='1'"),
        (PING + PONG.replace("id='1'", ""), "has the attributes"),
        (PING + PONG.replace("iq", "message"), "in place of"),
        (PING + PONG.replace("/>", ">x</iq>"), "has the text ''"),
        (PING + PONG.replace("/>", "><x/></iq>"), "has 0 children"),
        ("pump1 sends something", "this is no step"),
        ("    <presence/>", "before anybody sends it"),
    ],
)
def test_an_incorrect_transcript_fails(stage: TranscriptRunner, text: str, error: str) -> None:
    with pytest.raises(Mismatch, match=error.replace("(", r"\(")):
        stage.run(text)
