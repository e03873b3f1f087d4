#!/usr/bin/env python3
"""docs_test.py BUILD ROOT: makes the documentation as a site and reads it as a browser would: every link, anchor and
picture leads somewhere inside it, no page is left out, and nothing is loaded from elsewhere."""
import html.parser
import os
import re
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
from tap import case, check, equal, main, top

BUILD, ROOT = map(os.path.realpath, sys.argv[1:3])
OUT = os.path.join(top, "docs")
VOID = {"meta", "link", "img", "input", "br", "hr"}


class Page(html.parser.HTMLParser):
    """The anchors of a page, what it links to and loads, and the elements that are not closed."""

    def __init__(self, path):
        super().__init__()
        self.path, self.anchors, self.links, self.loaded = path, [], [], []
        self.open, self.wrong, self.text = [], [], ""
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if tag == "a" else []
        self.loaded += [attrs["src"]] if "src" in attrs else [attrs["href"]] if tag == "link" else []
        self.wrong += [tag] if tag in ("script", "iframe", "style") else []
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag):
        if tag in VOID:  # <img />
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data):
        self.text += data


def make():
    """The pages by their paths; None: the tool that makes them is not installed."""
    if not shutil.which("cmark-gfm"):
        return None
    made = subprocess.run([os.path.join(ROOT, "tools/docs"), BUILD, OUT], capture_output=True, text=True)
    if made.returncode:
        sys.exit(made.stderr)
    return {os.path.relpath(os.path.join(folder, name), OUT): Page(os.path.join(folder, name))
            for folder, _, names in os.walk(OUT) for name in names if name.endswith(".html")}


pages = make()


def of_site(name):
    """A case about the pages."""
    def add(function):
        @case(name)
        def _():
            return "cmark-gfm is not installed" if pages is None else function()
    return add


def tracked(*ends):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True).stdout.split()
    return [path for path in listed if path.endswith(ends)]


@of_site("every link leads to a file and an anchor of the site, or names another site in full")
def _():
    for name, page in pages.items():
        for link in page.links:
            if re.match(r"https://", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            check(os.path.isfile(os.path.join(OUT, target)), name, link)
            if anchor:
                check(target in pages and anchor in pages[target].anchors, name, link)


@of_site("nothing is loaded from elsewhere, and there are no scripts")
def _():
    for name, page in pages.items():
        for loaded in page.loaded:
            check(os.path.isfile(os.path.join(OUT, os.path.dirname(name), loaded)), name, loaded)
        equal(page.wrong, [], name)
        equal(page.open, [], name)
    with open(os.path.join(OUT, "site.css"), encoding="utf-8") as file:
        check(not re.search(r"url\(|@import", file.read()), "site.css")


@of_site("anchors of a page are unique")
def _():
    for name, page in pages.items():
        equal(sorted(page.anchors), sorted(set(page.anchors)), name)


@of_site("every page is in the navigation, and every page of docs/ is in the site")
def _():
    start = {link.partition("#")[0] for link in pages["index.html"].links}
    for name in pages:
        check(name in start or name.startswith("source/"), name)
    with open(os.path.join(ROOT, "tools/docs"), encoding="utf-8") as file:
        listed = file.read()
    for path in tracked(".md"):
        if path.startswith("docs/") or "/" not in path:
            check(f'"{path}"' in listed, path)


@of_site("the manual of the C library has every function that the library exports")
def _():
    with open(os.path.join(ROOT, "debian/libmillrace0.symbols"), encoding="utf-8") as file:
        names = set(re.findall(r"^ (mr_\w+)@", file.read(), re.M))
    check(names, "exported functions")
    anchors = {*pages["c.html"].anchors, *pages["c-flow.html"].anchors}
    equal(names - anchors, set())


@of_site("the manual of the command has every command, option and example of its help")
def _():
    run = lambda *words: subprocess.run([f"{BUILD}/millrace", "help", *words], capture_output=True, text=True).stdout
    text = re.sub(r"\s+", " ", pages["commands.html"].text)
    for name in re.findall(r"^\.SS millrace ([a-z]+(?: [a-z]+)?)", run("--man"), re.M):
        shown = run(*name.split())
        check(f"millrace-{name.replace(' ', '-')}" in pages["commands.html"].anchors, name)
        for option in re.findall(r"^  (--?[\w-]+)", shown, re.M):
            check(option in text, name, option)
        for example in re.findall(r"^  (millrace .*[^\\])$", shown, re.M):
            check(re.sub(r"\s+", " ", example) in text, name, example)


main()
