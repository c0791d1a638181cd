"""Relocatable ELF objects for x86-64: how large one is in memory, and its bytes for an address.

All sections of an object are in one piece, so that its code reaches its constants by 32-bit
offsets. The C library may be further away: calls into it go through stubs behind the sections.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from dnnl.errors import Error

_IDENT = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_RELA, _SYMBOLS, _NOBITS = 4, 2, 8  # types of sections
_WRITE, _ALLOC = 1, 2  # flags of sections
_ABSOLUTE = 0xFFF1  # the index of no section, of symbols that are numbers

# Types of relocation; S is the symbol, A the addend, P the place, G the slot with the symbol's
# address. ELF x86-64 psABI, table 4.9.
_S_A_64, _S_A_P_32, _PLT_32, _S_A_P_64 = 1, 2, 4, 24
_G_A_P_32 = (9, 41, 42)

_PAGE = 4096
_ALIGNMENTS = {1 << bits for bits in range(13)}  # up to that of a page

#: ``jmp *2(%rip)``, two bytes of padding, and the address: the slot is the latter half.
_STUB = struct.Struct("<QQ")
_JUMP = 0x90660000000225FF


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int


class Object:
    """A parsed object: ``size`` bytes once it is placed, ``symbols`` at their offsets.

    Its variables are the first ``variables`` bytes, a multiple of 4096. Raises `Error` for bytes
    that are no such object, for unknown references, and for variables where none are allowed.
    """

    def __init__(self, code: bytes, *, variables: bool = False) -> None:
        self._code, self._allowed = code, variables
        try:
            self._parse()
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            raise Error(f"cannot load object code ({len(code)} bytes): {error}") from error

    def _parse(self) -> None:
        code = self._code
        if code[:6] != _IDENT or struct.unpack_from("<HH", code, 16) != (_RELOCATABLE, _X86_64):
            raise ValueError("it is no relocatable ELF object for x86-64")
        (start,) = struct.unpack_from("<Q", code, 40)
        entry, count, names = struct.unpack_from("<HHH", code, 58)
        layout = struct.Struct("<IIQQQQIIQQ")
        self._sections = [
            _Section(*layout.unpack_from(code, start + entry * number)) for number in range(count)
        ]
        self._places: dict[int, int] = {}  # offsets of the sections that are loaded
        variables, others = list[int](), list[int]()
        for number, section in enumerate(self._sections):
            if not section.flags & _ALLOC or not section.size:
                continue
            name = self._text(names, section.name)
            constant = section.type != _NOBITS and (
                not section.flags & _WRITE or name.startswith(".data.rel.ro")
            )
            if not constant and not self._allowed:
                raise ValueError(f"section {name} holds variables")
            stored = 0 if section.type == _NOBITS else section.size
            if section.align not in _ALIGNMENTS or section.offset + stored > len(code):
                raise ValueError(f"section {name} is damaged")
            (others if constant else variables).append(number)
        self.variables = -(-self._place(variables, 0) // _PAGE) * _PAGE
        end = self._place(others, self.variables)
        self._symbols = [*self._read_symbols()]
        self.symbols = {
            symbol.name: self._offset(symbol)
            for symbol in self._symbols
            if symbol.name and symbol.section in self._places
        }
        self._stubs: dict[int, int] = {}  # offsets by the number of the symbol
        first = -(-end // _STUB.size) * _STUB.size
        for _, _, kind, number, _ in self._relocations():
            if kind in _G_A_P_32 or self._symbols[number].section not in self._places:
                self._stubs.setdefault(number, first + len(self._stubs) * _STUB.size)
        self.size = first + len(self._stubs) * _STUB.size

    def _place(self, numbers: Sequence[int], end: int) -> int:
        """Place sections one behind the other from ``end`` on; the new end."""
        for number in numbers:
            section = self._sections[number]
            self._places[number] = -(-end // section.align) * section.align
            end = self._places[number] + section.size
        return end

    def at(self, address: int) -> bytes:
        """The bytes of the object placed at ``address``, a multiple of 4096."""
        memory = bytearray(self.size)
        try:
            for number, place in self._places.items():
                section = self._sections[number]
                if section.type == _NOBITS:
                    continue
                content = self._code[section.offset : section.offset + section.size]
                memory[place : place + len(content)] = content
            for number, stub in self._stubs.items():
                _STUB.pack_into(memory, stub, _JUMP, self._address(number, address))
            for place, offset, kind, number, addend in self._relocations():
                self._relocate(memory, address, place + offset, kind, number, addend)
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            size = len(self._code)
            raise Error(f"cannot load object code ({size} bytes): {error}") from error
        return bytes(memory)

    def _relocate(
        self, memory: bytearray, base: int, at: int, kind: int, number: int, addend: int
    ) -> None:
        if kind in _G_A_P_32:
            struct.pack_into("<i", memory, at, self._stubs[number] + 8 + addend - at)
        elif kind == _S_A_64:
            struct.pack_into("<Q", memory, at, self._address(number, base) + addend)
        elif kind == _S_A_P_64:
            value = self._address(number, base) + addend - base - at
            struct.pack_into("<q", memory, at, value)
        elif kind in (_S_A_P_32, _PLT_32):
            stub = self._stubs.get(number)
            target = self._address(number, base) - base if stub is None else stub
            struct.pack_into("<i", memory, at, target + addend - at)
        else:
            raise ValueError(f"relocation {kind} is unknown")

    def _address(self, number: int, base: int) -> int:
        symbol = self._symbols[number]
        if symbol.section in self._places:
            return base + self._offset(symbol)
        if symbol.section == _ABSOLUTE:
            return symbol.value
        if symbol.section == 0 and symbol.name:
            return _in_process(symbol.name)
        raise ValueError(f"symbol {number} is in section {symbol.section}, which is not loaded")

    def _offset(self, symbol: _Symbol) -> int:
        if symbol.value > self._sections[symbol.section].size:
            raise ValueError(f"symbol {symbol.name!r} is beyond its section")
        return self._places[symbol.section] + symbol.value

    def _relocations(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Offset of the section, offset in it, type, number of the symbol and addend of each."""
        for section in self._sections:
            place = self._places.get(section.info)
            if section.type != _RELA or place is None:
                continue
            table = self._code[section.offset : section.offset + section.size]
            for offset, info, addend in struct.iter_unpack("<QQq", table):
                yield place, offset, info & 0xFFFFFFFF, info >> 32, addend

    def _read_symbols(self) -> Iterator[_Symbol]:
        for section in self._sections:
            if section.type == _SYMBOLS:
                table = self._code[section.offset : section.offset + section.size]
                for name, _, _, index, value, _ in struct.iter_unpack("<IBBHQQ", table):
                    yield _Symbol(self._text(section.link, name), index, value)

    def _text(self, table: int, offset: int) -> str:
        start = self._sections[table].offset + offset
        return self._code[start : self._code.index(b"\0", start)].decode()


@cache
def _in_process(name: str) -> int:
    """The address of a function of this process."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise ValueError(f"symbol {name!r} is not defined") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0
