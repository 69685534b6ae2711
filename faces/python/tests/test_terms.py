"""Values that change while they are written for Erlang: what is written has as many items as it says, or it is refused."""

import unittest
from collections.abc import Callable, Iterator
from typing import Any

from thalweg._native import decode_term, encode_term


class Meddles(set[int]):
    """A set that does something whenever somebody goes through it, as a collection of garbage may."""

    def __init__(self, does: Callable[[], object]) -> None:
        super().__init__((1, 2))
        self._does = does

    def __iter__(self) -> Iterator[int]:
        self._does()
        return super().__iter__()


class Less(set[int]):
    """A set that has fewer values than it says."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


class Terms(unittest.TestCase):
    def test_a_dictionary_that_changes_is_refused(self) -> None:
        for change in (lambda: values.update(c=3), lambda: values.pop("b"), lambda: values.clear()):
            values: dict[str, Any] = {"b": 2}
            values = {"a": Meddles(change), **values}
            self.assertRaisesRegex(RuntimeError, "changed while it was written", encode_term, values)

    def test_one_whose_keys_change_is_written_with_as_many(self) -> None:
        def change() -> None:
            values["c"] = values.pop("b")

        values: dict[str, Any] = {"a": Meddles(change), "b": 2}
        self.assertEqual(decode_term(encode_term(values)), {"a": [1, 2], "c": 2})

    def test_a_list_that_becomes_shorter_is_refused(self) -> None:
        values: list[Any] = [Meddles(lambda: values.pop()), 2, 3]
        self.assertRaisesRegex(RuntimeError, "changed while it was written", encode_term, values)

    def test_one_that_becomes_longer_is_written_as_it_was(self) -> None:
        values: list[Any] = [Meddles(lambda: values.append(4)), 2, 3]
        self.assertEqual(decode_term(encode_term(values)), [[1, 2], 2, 3])

    def test_a_set_of_fewer_values_than_it_says_is_refused(self) -> None:
        self.assertRaisesRegex(RuntimeError, "changed while it was written", encode_term, Less((1, 2)))


if __name__ == "__main__":
    unittest.main()
