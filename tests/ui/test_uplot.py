"""The library that draws the charts: the file its authors published, served as a module."""

import hashlib

from ui.serving.assets import UI, assets

# Of dist/uPlot.iife.min.js in the package uplot 1.6.32 on npm.
PUBLISHED = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"


def test_uplot_is_the_published_file():
    assert hashlib.sha256((UI / "web/vendor/uPlot.iife.min.js").read_bytes()).hexdigest() == PUBLISHED


def test_uplot_is_served_whole_with_its_license_english_numbers_and_an_export():
    published = (UI / "web/vendor/uPlot.iife.min.js").read_bytes()
    served = assets()["web/vendor/uPlot.js"].content
    before, after = published.split(b'new Intl.NumberFormat(_?k.language:"en-US")')
    assert served == before + b'new Intl.NumberFormat("en-US")' + after + b"export default uPlot;\n"
    assert b".language" not in served  # which may be no tag that Intl accepts
    assert served.startswith(b"/*! https://github.com/leeoniya/uPlot (v1.6.32) */\n")
    assert "web/vendor/uPlot.iife.min.js" not in assets()
