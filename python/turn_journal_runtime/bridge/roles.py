"""Who does a piece of work that one at a time may do."""

from __future__ import annotations


class Role(dict[int, object]):
    """Held by one owner at a time; unlike a lock it knows by whom, so that taking and giving back may be repeated.

    Taking is one C call that leaves the owner's name behind: an interrupt right after it loses nothing. The holder is
    the value of key 0, and a free role is empty, so that the hottest code can do without the methods.
    """

    __slots__ = ()

    def take(self, owner: object) -> bool:
        """Takes the role when it is free; whether the owner holds it now."""
        return self.setdefault(0, owner) is owner

    def give_back(self, owner: object) -> None:
        """Frees the role, if it is the owner's."""
        if self.get(0) is owner:
            del self[0]
