"""The server: accepted requests, served content, and two tabs that do not overwrite each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from vista.analysis import suspects
from vista.review import server
from vista.review.decisions import DecisionLog, read
from vista.review.run_decisions import subject_of
from vista.review.samples import SampleViewer
from vista.review.session import Filter, Session
from vista.runs.folder import RunFolder

TOKEN, PORT = "token", 4321
HERE = f"127.0.0.1:{PORT}"
OWN = {"host": HERE, "origin": f"http://{HERE}", "content-type": "application/json"}


class Client:
    """Sends requests to the application itself, with exactly these headers and this path."""

    def __init__(self, session: Session) -> None:
        self.session, self.ended = session, 0
        self.app = server.make_app(session, TOKEN, PORT, self._end)

    def _end(self) -> None:
        self.ended += 1

    def __call__(self, path: str, body: object = None, method: str | None = None, **headers: str) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        named = {"host": HERE} if body is None else {**OWN, "content-length": str(len(content))}
        named |= {key.replace("_", "-"): value for key, value in headers.items()}
        plain, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method or ("GET" if body is None else "POST"), "path": plain,
            "raw_path": plain.encode(), "query_string": query.encode(), "scheme": "http", "http_version": "1.1",
            "headers": [(key.encode(), value.encode()) for key, value in named.items() if value], "root_path": "",
            "server": ("127.0.0.1", PORT),
        }  # fmt: skip
        sent: list[dict] = []

        async def receive() -> dict:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: dict) -> None:
            sent.append(message)

        with ThreadPoolExecutor(1) as thread:  # this one may be inside the loop of a browser's test
            thread.submit(anyio.run, self.app, scope, receive, send).result()
        self.headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])

    def decide(self, *wanted: dict) -> tuple[int, dict]:
        status, answer = self(f"/{TOKEN}/decide", {"decisions": list(wanted)})
        return status, json.loads(answer)


@pytest.fixture
def client(run: Path) -> Iterator[Client]:
    folder = RunFolder.open(run)
    log = DecisionLog(run / "decisions.jsonl", subject_of(folder))
    yield Client(Session(folder, suspects.of_run(folder), log, SampleViewer(folder), "me"))
    log.close()


def test_only_the_printed_address_is_answered(client: Client) -> None:
    assert client(f"/{TOKEN}/")[0] == 200
    assert client(f"/{TOKEN}/", host=f"localhost:{PORT}")[0] == 200
    for path in ("/", "/start", "/tokem/start", "/token2/start", f"/../{TOKEN}/start"):
        assert client(path)[0] == 403, path
    for host in ("evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", ""):
        assert client(f"/{TOKEN}/start", host=host)[0] == 403, host
    assert client(f"/{TOKEN}/start", sec_fetch_site="cross-site")[0] == 403
    assert client(f"/{TOKEN}/start", sec_fetch_site="same-origin")[0] == 200


def test_other_origins_cannot_decide(client: Client) -> None:
    made = {"decisions": [{"id": int(client.session.found.ids[0]), "decision": "accept", "seen": 0}]}
    for origin in ("http://evil.example", "null", f"http://localhost:{PORT}", f"https://{HERE}", ""):
        assert client(f"/{TOKEN}/decide", made, origin=origin)[0] == 403, origin
    assert client(f"/{TOKEN}/decide", made, content_type="text/plain")[0] == 400
    assert client(f"/{TOKEN}/decide", method="GET")[0] == 405
    assert not client.session.log.current
    assert client(f"/{TOKEN}/decide", made)[0] == 200


def test_every_answer_forbids_foreign_content(client: Client) -> None:
    for path in (f"/{TOKEN}/", f"/{TOKEN}/start", f"/{TOKEN}/image/0", "/", f"/{TOKEN}/none"):
        client(path)
        assert "default-src 'none'" in client.headers["content-security-policy"]
        assert client.headers["x-content-type-options"] == "nosniff"
        assert client.headers["referrer-policy"] == "no-referrer"


def test_samples_are_served_by_id_alone(client: Client, prepared: Path) -> None:
    status, image = client(f"/{TOKEN}/image/0")
    assert (status, image[:8]) == (200, b"\x89PNG\r\n\x1a\n")
    secret = prepared / "secret.txt"
    secret.write_text("secret")
    for path in (
        "image/9999",
        "image/-1",
        "image/../../secret.txt",
        "image/%2e%2e%2fsecret.txt",
        "../secret.txt",
        "assets/x",
    ):
        assert client(f"/{TOKEN}/{path}")[0] == 404, path


def test_a_path_that_leaves_the_folder_is_not_read(client: Client, prepared: Path) -> None:
    viewer = client.session.viewer
    expected = viewer._pixels(0).tobytes()
    (prepared / "outside.png").write_bytes((prepared / "data" / viewer.data.files[30]).read_bytes())
    object.__setattr__(viewer.data, "files", ("../outside.png", *viewer.data.files[1:]))
    assert viewer._original(0) is None
    assert viewer._pixels(0).tobytes() == expected


def test_a_file_that_is_no_image_any_more_is_shown_as_it_was_trained_on(client: Client, tmp_path: Path) -> None:
    viewer = client.session.viewer
    (tmp_path / viewer.data.files[0]).parent.mkdir()
    (tmp_path / viewer.data.files[0]).write_text("<script>alert(1)</script>")
    viewer._folder = tmp_path
    status, image = client(f"/{TOKEN}/image/0")
    assert (status, image[:4]) == (200, b"\x89PNG")


def test_two_tabs_do_not_overwrite_each_other(client: Client, run: Path) -> None:
    sample = int(client.session.found.ids[0])
    assert client.decide({"id": sample, "decision": "accept", "seen": 0})[0] == 200
    status, answer = client.decide({"id": sample, "decision": "unlabel", "seen": 0})
    assert (status, answer["conflict"][0]["status"], answer["conflict"][0]["seen"]) == (409, "accept", 1)
    other = int(client.session.found.ids[1])
    status, _ = client.decide(
        {"id": other, "decision": "keep", "seen": 0}, {"id": sample, "decision": "keep", "seen": 0}
    )
    assert status == 409
    assert {each.id: each.decision for each in read(run / "decisions.jsonl", client.session.log.subject).values()} == {
        sample: "accept"
    }
    assert client.decide({"id": sample, "decision": "undo", "seen": 1})[0] == 200
    assert not client.session.log.current


@pytest.mark.parametrize(
    "wanted",
    [{"id": 10**6, "decision": "accept"}, {"id": "0", "decision": "keep"}, {"id": 0, "decision": "guess"},
     {"id": 0, "decision": "other", "label": 99}, {"id": 0, "decision": "other", "label": "darc"}],
)  # fmt: skip
def test_bad_decisions_change_nothing(client: Client, wanted: dict) -> None:
    status, answer = client.decide({"seen": 0, **wanted})
    assert status == 400
    assert "error" in answer
    assert not client.session.log.current
    assert client(f"/{TOKEN}/decide", {"decisions": []})[0] == 400
    assert client(f"/{TOKEN}/decide", {"decisions": [1]})[0] == 400
    assert client(f"/{TOKEN}/rows?low=x")[0] == 400
    assert client(f"/{TOKEN}/rows?status=none")[0] == 400


def test_rows_follow_the_filters(client: Client) -> None:
    session = client.session
    everything = session.rows(Filter(low=0.0), limit=100)
    assert everything["total"] == everything["matching"] == len(session.found)
    first = everything["rows"][0]
    pair = session.rows(Filter(first["given"], first["suggested"], low=0.0), limit=100)["rows"]
    assert {(row["given"], row["suggested"]) for row in pair} == {(first["given"], first["suggested"])}
    assert all(row["score"] >= 0.5 for row in session.rows(Filter(), limit=100)["rows"])
    session.decide([{"id": first["id"], "decision": "skip", "seen": 0}])
    assert [row["id"] for row in session.rows(Filter(low=0.0, status="skip"))["rows"]] == [first["id"]]
    left = session.rows(Filter(low=0.0, status="undecided"), limit=100)
    assert first["id"] not in [row["id"] for row in left["rows"]]
    assert (left["total"], left["decided"], left["skipped"]) == (len(session.found), 0, 1)
    assert session.rows(Filter(low=0.0), before=3, limit=2)["rows"][0]["rank"] == 1


def test_pairs_count_the_listed_samples(client: Client) -> None:
    session = client.session
    listed = [(row["given"], row["suggested"]) for row in session.rows(Filter(), limit=100)["rows"]]
    counted = {(pair["given"], pair["suggested"]): pair["count"] for pair in session.start()["pairs"]}
    assert counted == Counter(listed)
    assert list(counted.values()) == sorted(counted.values(), reverse=True)


def test_skipped_samples_are_not_decided(client: Client) -> None:
    session = client.session
    first, second = session.found.ids[:2].tolist()
    client.decide({"id": first, "decision": "skip", "seen": 0}, {"id": second, "decision": "keep", "seen": 0})
    shown = session.rows(Filter(low=0.0))
    assert (shown["decided"], shown["skipped"]) == (1, 1)
    answer = json.loads(client(f"/{TOKEN}/finish", {})[1])
    assert (answer["decided"], answer["skipped"]) == (1, 1)


def test_the_history_is_the_recorded_one(client: Client) -> None:
    folder, session = client.session.folder, client.session
    predicted, train = folder.predictions().classes, folder.split().train.tolist()
    for row in session.rows(Filter(low=0.0), limit=100)["rows"]:
        shown = {(each["class"], epoch) for each in row["history"] for epoch in each["epochs"]}
        if row["id"] in train:
            assert shown == set(zip(predicted[:, train.index(row["id"])].tolist(), range(1, 9), strict=True))
        else:
            assert (shown, row["evidence"]) == (set(), "held out")


def test_finishing_names_the_commands(client: Client, run: Path) -> None:
    status, answer = client(f"/{TOKEN}/finish", {})
    commands = json.loads(answer)["commands"]
    assert (status, client.ended) == (200, 1)
    assert commands[0] == f"vista labels {run} --decisions {run}/decisions.jsonl --clean labels.csv"
    assert f"--labels labels.csv --split-from {run} --out {run}-corrected" in commands[1]
    assert commands[2] == f"vista compare {run} {run}-corrected"


def test_data_that_changed_are_named(run: Path, prepared: Path) -> None:
    folder = RunFolder.open(run)
    file = next(iter(sorted((prepared / "data" / "dark").iterdir())))
    content, other = file.read_bytes(), sorted((prepared / "data" / "half").iterdir())[-1].read_bytes()
    try:
        file.write_bytes(other)
        with pytest.raises(ValueError, match=f"{file.name} has another content; restore the data"):
            SampleViewer(folder)
        file.rename(file.with_name("moved.png"))
        with pytest.raises(ValueError, match=r"<script>\S+ is missing and dark/moved.png is new"):
            SampleViewer(folder)
    finally:
        file.with_name("moved.png").unlink(missing_ok=True)
        file.write_bytes(content)


def test_a_port_in_use_is_reported() -> None:
    with (
        server.listen(0) as opened,
        pytest.raises(ValueError, match=r"port \d+ cannot be used .*choose another --port"),
    ):
        server.listen(opened.getsockname()[1])
    with pytest.raises(ValueError, match="port must be 0 to 65535, got 70000"):
        server.listen(70000)


def test_a_table_row_is_shown_as_written(tmp_path: Path) -> None:
    import vista

    rows = [f"{'red' if k % 2 else '<b>blue'},{k},{'yes' if k % 2 else 'no'}" for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["colour,size,label", *rows]))
    made = vista.train(data=f"csv:{tmp_path / 't.csv'}", label_column="label", out=tmp_path / "run", network="mlp",
                       epochs=2, batch_size=8, lr=0.05, validation=0.2, device="cpu")  # fmt: skip
    viewer = SampleViewer(RunFolder.open(made.folder))
    assert viewer.content(4) == {"columns": ["colour", "size", "label"], "values": ["<b>blue", "4", "no"]}
