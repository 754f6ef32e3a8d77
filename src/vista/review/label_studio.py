"""Label Studio: suspects as tasks with predictions, and its export as decisions.

A task refers to an image by the path that Label Studio serves from a local folder, or holds the content of a sample
that is no file. Its prediction is the suggested class; a decision becomes an annotation.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vista.analysis.suspects import LabelIssues
from vista.files import reader
from vista.files.reader import DamagedFile
from vista.review import decisions
from vista.review.decisions import ACCEPT, KEEP, OTHER, SKIP, Decision, Subject
from vista.review.samples import SampleViewer

CONTROL, LOCAL_FILES = "label", "/data/local-files/?d="
REMEDY = "export the project from Label Studio as JSON"


def labelling_config(classes: tuple[str, ...], is_image: bool) -> str:
    """The labelling interface of the project, in Label Studio's XML.

    >>> print(labelling_config(("cat", "dog & wolf"), is_image=True))
    <View>
      <Header value="given: $given"/>
      <Image name="image" value="$image"/>
      <Choices name="label" toName="image" choice="single" required="true">
        <Choice value="cat"/>
        <Choice value="dog &amp; wolf"/>
      </Choices>
    </View>
    <BLANKLINE>
    """
    kind, tag = ("image", "Image") if is_image else ("text", "Text")
    choices = "".join(f'    <Choice value="{html.escape(name)}"/>\n' for name in classes)
    return (
        '<View>\n  <Header value="given: $given"/>\n'
        f'  <{tag} name="{kind}" value="${kind}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{kind}" choice="single" required="true">\n'
        f"{choices}  </Choices>\n</View>\n"
    )


def content_of(viewer: SampleViewer, found: LabelIssues) -> Callable[[int], str]:
    """What a task shows of a sample: the path of its file, the image itself, or its text or values."""

    def content(sample: int) -> str:
        if viewer.is_image and found.files is not None:
            return LOCAL_FILES + quote(found.files[sample])
        if viewer.is_image:
            return "data:image/png;base64," + base64.b64encode(viewer.png(sample)).decode()
        values = viewer.content(sample)
        if "text" in values:
            return str(values["text"])
        names = values.get("columns", range(len(values["values"])))
        return "\n".join(f"{name}: {value}" for name, value in zip(names, values["values"], strict=True))

    return content


def make_tasks(
    found: LabelIssues,
    count: int,
    taken: Mapping[int, Decision],
    content: Callable[[int], str],
    *,
    is_image: bool,
    subject: Subject,
) -> list[dict[str, Any]]:
    """The most suspect samples as tasks that Label Studio imports.

    Args:
        found: The judged samples, most suspect first.
        count: How many of them become tasks.
        taken: Decisions so far, which become annotations.
        content: What is shown of a sample.
        is_image: Whether that is an image.
        subject: The run.
    """
    kind = "image" if is_image else "text"

    def result(label: int) -> list[dict[str, Any]]:
        value = {"choices": [found.classes[label]]}
        return [{"from_name": CONTROL, "to_name": kind, "type": "choices", "value": value}]

    tasks = []
    for rank in range(count):
        sample, score = int(found.ids[rank]), round(float(found.score[rank]), 6)
        given, suggested = int(found.given[rank]), int(found.suggested[rank])
        about = {"sample": sample, "given": found.classes[given], "score": score, "run": subject.run}
        if found.files is not None:
            about["file"] = found.files[sample]
        task: dict[str, Any] = {
            "data": {kind: content(sample), **about},
            "predictions": [{"model_version": f"vista {subject.run}", "score": score, "result": result(suggested)}],
        }
        decided = taken.get(sample)
        if decided is not None and decided.label is not None:
            task["annotations"] = [{"result": result(decided.label)}]
        tasks.append(task)
    return tasks


def read_export(path: Path, subject: Subject, suggested: Mapping[int, int]) -> list[Decision]:
    """The decisions in a file that Label Studio exported as JSON.

    Args:
        path: The file.
        subject: The run whose tasks were annotated.
        suggested: Suggested class of each sample.

    Returns:
        A decision for each annotated task: its last annotation counts, and a skipped task is a skip.
    """
    content = reader.read_bytes(path, limit=reader.MAX_JSON_BYTES)
    tasks = reader.parse_object(b'{"tasks": ' + content + b"}", path, REMEDY)["tasks"]
    if not isinstance(tasks, list) or not all(isinstance(task, dict) and "annotations" in task for task in tasks):
        raise DamagedFile(path, "it must be a list of tasks with annotations", REMEDY)
    found = [_decision(task, f"{path} task {number}", subject, suggested) for number, task in enumerate(tasks, 1)]
    return [each for each in found if each is not None]


def _decision(task: dict[str, Any], where: str, subject: Subject, suggested: Mapping[int, int]) -> Decision | None:
    about, made = task.get("data"), task["annotations"]
    if not isinstance(about, dict) or not isinstance(made, list) or not all(isinstance(each, dict) for each in made):
        raise DamagedFile(where, "it must have data and a list of annotations", REMEDY)
    if not made:
        return None
    sample, last = about.get("sample"), made[-1]
    if type(sample) is not int or not 0 <= sample < len(subject.given):
        raise ValueError(f"{where} is not from `vista labels --to-label-studio`: its sample is {sample!r}")
    given = int(subject.given[sample])
    if about.get("given") != subject.classes[given] or about.get("run") != subject.run:
        raise ValueError(
            f"{where} was made for another run: sample {sample} is labelled {subject.classes[given]!r} here"
        )
    author = last.get("completed_by")
    author = author.get("email") if isinstance(author, dict) else author
    file = None if subject.files is None else subject.files[sample]
    time, by = str(last.get("updated_at") or decisions.now()), f"label-studio {author or 'unknown'}"
    label = None if last.get("was_cancelled") else _choice(last, where, subject)
    if label is None:
        return Decision(sample, SKIP, None, given, file, time=time, author=by)
    kind = KEEP if label == given else ACCEPT if label == suggested.get(sample) else OTHER
    return Decision(sample, kind, label, given, file, time=time, author=by)


def _choice(annotation: dict[str, Any], where: str, subject: Subject) -> int | None:
    """The class that was chosen; None if there is no choice."""
    results = annotation.get("result")
    for each in results if isinstance(results, list) else ():
        if isinstance(each, dict) and each.get("from_name") == CONTROL:
            value = each.get("value")
            chosen = value.get("choices") if isinstance(value, dict) else None
            if not isinstance(chosen, list) or len(chosen) != 1:
                raise DamagedFile(where, f"it must have one choice, got {chosen!r}", REMEDY)
            return decisions.class_number(str(chosen[0]), subject.classes, where)
    return None


def new_decisions(found: list[Decision], current: Mapping[int, Decision]) -> list[Decision]:
    """Those that differ from what is decided already, so that an export can be imported again."""
    known = {sample: (each.decision, each.label) for sample, each in current.items()}
    return [each for each in found if known.get(each.id) != (each.decision, each.label)]
