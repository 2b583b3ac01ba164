"""Version sets with the packages of ``--with`` laid over them.

An environment of such a set links to the installed packages of the set, except those that are replaced: the set is
installed once, whatever is laid over it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from filecmp import cmp
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.environments import leases, provision
from matrix.environments.environment import Environment, lease_path, site_packages
from matrix.environments.leases import LeaseGroup
from matrix.environments.linked_environment import InstalledPackage, installed_packages, link
from matrix.environments.marker import MARKER, Marker, read_marker, write_marker
from matrix.environments.pytest_runner import PTH
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import SetKey
from matrix.replacements.building import FOLDER, Replacement, remove_oldest, replacement
from matrix.replacements.source import SourceKind
from matrix.versions import locking, locks
from matrix.versions.backends import Backend
from matrix.versions.locks import Lock, distribution, statements
from matrix.versions.sets import PACKAGES, VersionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from matrix.replacements.source import ReplacementSource
    from matrix.versions.uv import Uv

LINKED: Final = "linked"  # in the cache


@dataclass(frozen=True, kw_only=True)
class ReplacedSets:
    """Version sets with some packages replaced. Implements ``Packed``, which a run installs instead of its sets.

    Attributes:
        sources: the words of ``--with``.
        originals: the sets that packages can be laid over.
        cache: the folder of environments.
        uv: the command that builds and installs.
        build: the build of torch.
        lock_folder: the locks of the original sets.
    """

    sources: tuple[ReplacementSource, ...]
    originals: tuple[VersionSet, ...]
    cache: Path
    uv: Uv
    build: Backend = field(default_factory=Backend)
    lock_folder: Path = locks.PACKAGED
    known: dict[str, tuple[Replacement, ...]] = field(default_factory=dict, compare=False)  # by Python version
    original_of: dict[str, VersionSet] = field(default_factory=dict, compare=False)  # by key of the replaced set

    @property
    def backend(self) -> str:
        return self.build.name

    @property
    def host_paths(self) -> tuple[str, ...]:
        return ()

    @property
    def sets(self) -> tuple[VersionSet, ...]:
        """The sets that were used so far: packages are built only for their Pythons."""
        return tuple(map(self.version_set, self.original_of.values()))

    @property
    def pinned(self) -> tuple[ReplacementSource, ...]:
        """The sources with their commits, once a set was used."""
        return tuple(each.pinned for found in [*self.known.values()][:1] for each in found)

    def of_keys(self, keys: Iterable[str]) -> dict[str, VersionSet]:
        """The sets that may have some of these keys, by their present keys."""
        wanted = frozenset(keys)
        bases = (each for each in self.originals if any(key.startswith(f"{each.key}+") for key in wanted))
        return {each.key: each for each in map(self.version_set, bases)}

    def replacements(self, python: str) -> tuple[Replacement, ...]:
        """The packages of ``--with`` for a Python such as ``3.11``, in order of their names.

        Raises:
            UserError: one cannot be fetched, built or installed, or two are the same package.
        """
        if python not in self.known:
            found = sorted(
                (replacement(each, python=python, cache=self.cache, uv=self.uv) for each in self.sources),
                key=lambda each: each.name,
            )
            names = [each.name for each in found]
            twice = next((name for name in names if names.count(name) > 1), "")
            if twice:
                raise UserError(f"--with names {twice} twice; keep one of them")
            remove_oldest(self.cache / FOLDER)
            self.known[python] = tuple(found)
        return self.known[python]

    def key(self, original: VersionSet) -> str:
        key = SetKey.parse(original.key)
        for each in self.replacements(original.python):
            key = key.plus(each.name, each.label)
        return str(key)

    def version_set(self, original: VersionSet) -> VersionSet:
        """A set with the packages laid over it."""
        found = self.replacements(original.python)
        versions = {each.name: each.version for each in found}
        key = self.key(original)
        self.original_of[key] = original
        return replace(
            original,
            key=key,
            pins={name: versions.get(name, original.pins[name]) for name in PACKAGES},
            extras={},
            default=False,
            why=f"{original.key} with {'; '.join(f'{each.name}: {each.description}' for each in found)}",
            replaced={f"{each.name}_{fact}": value for each in found for fact, value in each.facts.items()},
        )

    def original(self, key: str) -> VersionSet:
        """The set that packages were laid over.

        Raises:
            UserError: what ``--with`` names has changed since the key was made.
        """
        if key not in self.original_of:
            self.of_keys([key])
        if key not in self.original_of:
            raise UserError(f"{key}: what --with names has changed since; start a new run")
        return self.original_of[key]

    def original_lock(self, original: VersionSet) -> Lock | Evidence:
        return locking.read_or_resolve(original, uv=self.uv, folder=self.lock_folder)

    def lock(self, version_set: VersionSet) -> Lock | Evidence:
        """The lock of the original set, in which local versions name the files of the replaced packages."""
        original = self.original(version_set.key)
        lock = self.original_lock(original)
        if isinstance(lock, Evidence):
            return lock
        found = self.replacements(original.python)
        names = {each.name for each in found}
        kept = [line for line in statements(lock.text) if distribution(line) not in names]
        comments = [f"# {each.name}: {each.description}" for each in found]
        lines = sorted([*kept, *(each.statement for each in found)])
        return Lock(version_set=version_set, text="\n".join([*comments, *lines]) + "\n")

    def check(self, version_sets: Iterable[VersionSet]) -> None:
        """Check that the packages of ``--with`` belong to the sets, and that the sets have what they require.

        Raises:
            UserError: they do not fit; the sentence names the package, the requirement and the set.
        """
        for version_set in version_sets:
            original = self.original(version_set.key)
            lock = self.original_lock(original)
            if isinstance(lock, Evidence):
                continue  # its cells are blocked, as without --with
            found = self.replacements(original.python)
            versions = {**lock.versions, **{each.name: each.version for each in found}}
            for each in found:
                check_member(each, lock)
                refuse_unmet([each.package], versions, where=original)

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence:
        """The environment of a set with replaced packages, or evidence why the original set cannot be installed.

        The caller releases the environment.

        Raises:
            UserError: another package of the set requires another version of a replaced one.
        """
        original = self.original(lock.version_set.key)
        original_lock = self.original_lock(original)
        if isinstance(original_lock, Evidence):
            return original_lock
        base = provision.install(original_lock, cache=self.cache, uv=self.uv, backend=self.build, make_room=make_room)
        if isinstance(base, Evidence):
            return base
        try:
            return self.linked(lock, base, self.replacements(original.python), original)
        except BaseException:
            base.release()
            raise

    def linked(self, lock: Lock, base: Environment, found: Sequence[Replacement], original: VersionSet) -> Environment:
        names = {each.name for each in found}
        kept = [each for name, each in installed_packages(site_packages(base.root)).items() if name not in names]
        versions = {**{each.name: each.version for each in kept}, **{each.name: each.version for each in found}}
        refuse_unmet(kept, versions, where=original, names=names)
        root = self.cache / LINKED / f"{lock.digest}-{base.backend}"
        packages = [*kept, *(each.package for each in found)]
        in_use = [leases.acquire_shared(lease_path(each.package.folder)) for each in found]
        try:
            lease = self.acquire(root, packages, lock, base)
        except BaseException:
            LeaseGroup(tuple(in_use)).release()
            raise
        remove_oldest(root.parent)
        return Environment(
            key=lock.version_set.key,
            lock=lock.digest,
            backend=base.backend,
            root=root,
            installed=versions,
            notes=(*base.notes, *(f"{each.name} {each.version}: {each.description}" for each in found)),
            lease=LeaseGroup((lease, *in_use, base.lease)),
        )

    def acquire(self, root: Path, packages: Sequence[InstalledPackage], lock: Lock, base: Environment) -> leases.Lease:
        """A shared lease on the environment of links, which is created first if it is missing or incomplete."""
        while True:
            lease = leases.acquire_shared(lease_path(root))
            if is_complete(root, like=base.root):
                (root / MARKER).touch()
                root.touch()
                return lease
            lease.release()
            with leases.held_exclusively(lease_path(root)):
                if not is_complete(root, like=base.root):
                    link(root, packages, like=base.root)
                    write_marker(root, marker_of(lock, base, packages))


def check_member(each: Replacement, lock: Lock) -> None:
    """Check that a set has the package in another version.

    Raises:
        UserError: it does not have it, or exactly this release.
    """
    key = lock.version_set.key
    if each.name not in lock.versions:
        raise UserError(f"{each.source.option}: {each.name} is not part of {key}; --with replaces packages of a set")
    if each.source.kind is SourceKind.RELEASE and lock.versions[each.name] == each.version:
        raise UserError(f"{each.source.option}: {key} has this release already; choose another one")


def refuse_unmet(
    packages: Iterable[InstalledPackage],
    versions: dict[str, str],
    *,
    where: VersionSet,
    names: Iterable[str] = (),
) -> None:
    """Check that versions meet what packages require, or only what they require of ``names``.

    Raises:
        UserError: a requirement is not met.
    """
    place = {"python_version": where.python, "python_full_version": f"{where.python}.99", "extra": ""}
    only = frozenset(names)
    for each in packages:
        for requirement in map(Requirement, each.requires):
            name = str(canonicalize_name(requirement.name))
            applies = requirement.marker is None or requirement.marker.evaluate(place)
            if not applies or (only and name not in only):
                continue
            version = versions.get(name)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                has = f"has {name} {version}" if version else "does not have it"
                raise UserError(
                    f"--with: {each.name} {each.version} requires {name}{requirement.specifier}, but {where.key}"
                    f" {has}; choose another set, or lay a matching {name} over it as well"
                )


def is_complete(root: Path, *, like: Path) -> bool:
    """Return whether every link of an environment has its target, and it finds the same pytest as the installed one."""
    if read_marker(root) is None or not (root / "bin" / "python").exists():
        return False
    runner, expected = (site_packages(each) / PTH for each in (root, like))
    return all(each.exists() for each in site_packages(root).iterdir()) and cmp(runner, expected, shallow=False)


def marker_of(lock: Lock, base: Environment, packages: Sequence[InstalledPackage]) -> Marker:
    return Marker(
        key=lock.version_set.key,
        lock=lock.digest,
        backend=base.backend,
        python=lock.version_set.python,
        runner="",
        installed={each.name: each.version for each in packages},
    )
