"""Whether the plugins that a run was trained with are loaded, in the version that it was trained with."""

from collections.abc import Iterable

from core.config.preset import PLUGIN_FILES
from core.runs.info import FileHash, PluginFile, recorded_name, recorded_plugin


def missing_plugins(trained: Iterable[PluginFile]) -> str:
    """Return which plugins a run was trained with that are not loaded, "" if there are none."""
    loaded = set(map(recorded_name, PLUGIN_FILES))
    files = [each for each in trained if each.name not in loaded]
    names = ", ".join(f"--plugin {each.name} (SHA-256 {each.sha256[:12]}…)" for each in files)
    return f"it was trained with {names}" if names else ""


def changed_plugins(trained: Iterable[PluginFile]) -> str:
    """Return which plugins are loaded in another version than a run was trained with, "" if there are none.

    So are plugins that import another version of a module in their folder.
    """
    loaded = {plugin.name: plugin for plugin in map(recorded_plugin, PLUGIN_FILES, PLUGIN_FILES.values())}
    texts = [_change(each, now) for each in trained if (now := loaded.get(each.name))]
    changes = ", ".join(filter(None, texts))
    return f"it was trained with another version of --plugin {changes}" if changes else ""


def _change(plugin: PluginFile, now: PluginFile) -> str:
    """Return the name of a plugin and in which files it differs now, "" if in none.

    Modules that only one of the two imports do not count: another file of it then differs too.
    """
    imports = {each.name: each for each in now.imports}
    pairs = [(each, imports[each.name]) for each in plugin.imports if each.name in imports]
    modules = [f"its module {old.name}: {_hashes(old, new)}" for old, new in pairs if old.sha256 != new.sha256]
    own = [_hashes(plugin, now)] if plugin.sha256 != now.sha256 else []
    return f"{plugin.name} ({'; '.join(own + modules)})" if own or modules else ""


def _hashes(old: FileHash, new: FileHash) -> str:
    return f"SHA-256 {old.sha256[:12]}…, now {new.sha256[:12]}…"
