"""Keeps the facts of files that were read once: most files of a release are those of the release before."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from matrix.api_map.packages import module_name
from matrix.api_map.reading.module_facts import FORMAT, ModuleFacts, read_module

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path


class FactsCache:
    """Facts by path, checksum and size of a file. A wheel's directory states these, so known files are not fetched."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(path)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS facts (path TEXT, crc INT, size INT, format INT, data BLOB,"
            " PRIMARY KEY (path, crc, size, format))"
        )

    def facts(self, wheel: zipfile.ZipFile, file: zipfile.ZipInfo) -> ModuleFacts:
        key = (file.filename, file.CRC, file.file_size, FORMAT)
        row = self.database.execute(
            "SELECT data FROM facts WHERE path = ? AND crc = ? AND size = ? AND format = ?", key
        ).fetchone()
        if row is not None:
            return ModuleFacts.unpacked(row[0])
        module, is_package = module_name(file.filename)
        read = read_module(wheel.read(file), module, is_package=is_package)
        self.database.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", (*key, read.packed()))
        return read

    def commit(self) -> None:
        self.database.commit()

    def close(self) -> None:
        self.database.commit()
        self.database.close()
