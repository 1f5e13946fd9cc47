"""Files in LEAF's layout for tests."""

import json
from pathlib import Path
from typing import Any

TEXT = "to be or not to be that is the question whether tis nobler in the mind to suffer " * 2


def write_part(folder: Path, part: str, data: dict[str, Any], name: str = "all_data.json") -> None:
    (folder / part).mkdir(parents=True, exist_ok=True)
    sizes = [len(one["x"]) for one in data.values()]
    content = {"users": list(data), "num_samples": sizes, "user_data": data, "hierarchies": []}
    (folder / part / name).write_text(json.dumps(content))


def characters(start: int, count: int, length: int = 8) -> dict[str, Any]:
    """A user's samples as of Shakespeare: strings and the character behind each."""
    places = range(start, start + count)
    return {
        "x": [TEXT[place : place + length] for place in places],
        "y": [TEXT[place + length] for place in places],
    }


def comment(*words: str, length: int = 4) -> tuple[list[list[str]], dict[str, Any]]:
    """One comment as of Reddit: sequences between <BOS> and <EOS>, padded."""
    said = ["<BOS>", *words, "<EOS>"]
    xs, ys, counts = [], [], []
    for start in range(0, len(said) - 1, length):
        x, y = said[start:-1][:length], said[start + 1 :][:length]
        more = length - len(x)
        xs.append(x + ["<PAD>"] * more)
        ys.append(y + ["<PAD>"] * more)
        counts.append([1] * len(x) + [0] * more)
    return xs, {"target_tokens": ys, "count_tokens": counts, "subreddit": "tests"}


def comments(*texts: str) -> dict[str, Any]:
    """A user's samples as of Reddit."""
    made = [comment(*text.split()) for text in texts]
    return {"x": [x for x, _ in made], "y": [y for _, y in made]}


def write_characters(folder: Path, users: int = 3) -> None:
    write_part(folder, "train", {f"u{n}": characters(20 * n, 6 + n) for n in range(users)})
    write_part(folder, "test", {f"u{n}": characters(20 * n + 10, 2) for n in range(users)})


def write_comments(folder: Path) -> None:
    train = {"ann": comments("to be or not to be", "that is the question"), "bob": comments("hm")}
    write_part(folder, "train", train)
    write_part(folder, "test", {"ann": comments("to be silent"), "cyd": comments("or not")})
