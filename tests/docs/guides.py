# SPDX-License-Identifier: BSL-1.0
"""The test docs/guides: each public header has a guide. Also links both in the API reference.

    guides.py check <the repository>
    guides.py write <the repository> <folder>     writes headers and pages as Doxygen reads them
    guides.py built <folder>                      checks the HTML that Doxygen wrote

The guide of a header is the first page in its row of docs/catalogue.md, or in the row of its
umbrella header, of its folder, or of a folder above. GUIDES has the headers that need another page,
most of which `penstock.hpp` includes. A written header has the guide in each comment of a public
name, and the line numbers of the original.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from pages import FENCE  # noqa: E402

# Folders and headers, without an extension, below include/.
GUIDES = {
    "penstock/core": "tutorial.md#2-a-dataset-of-your-own",
    "penstock/core/checked": "checked.md",
    "penstock/core/error": "faults.md",
    "penstock/core/lease": "tutorial.md#6-keeping-batches",
    "penstock/core/tensor_view": "tensors.md#spans-mdspan-thrust",
    "penstock/core/version": "install.md#macros-and-flags",
    "penstock/data": "tutorial.md#2-a-dataset-of-your-own",
    "penstock/data/adaptors": "from_pytorch.md#a-dataset",
    "penstock/device": "gpu.md#what-runs-without-a-gpu",
    "penstock/faults": "faults.md#bad-samples",
    "penstock/load": "tutorial.md",
    "penstock/load/footprint": "tuning.md#how-much-memory",
    "penstock/load/options": "from_pytorch.md#every-argument-of-dataloader",
    "penstock/load/tuning_history": "tuning.md#let-the-loop-choose",
    "penstock/memory/budget": "tuning.md#how-much-memory",
    "penstock/order": "from_pytorch.md#samplers",
    "penstock/order/random": "from_pytorch.md#a-dataset",
    "penstock/order/sharded": "scaling.md",
    "penstock/resume": "tutorial.md#7-stop-and-resume",
    "penstock/transfer": "tutorial.md",
    "penstock/transfer/device_transform": "gpu.md#transforms-on-the-device",
    "penstock_ext/blob/image_folder": "images.md",
    "penstock_ext/blob/stored_blobs": "stores.md",
    "penstock_ext/blob/verified_blobs": "images.md#flipped-bits",
    "penstock_ext/files/cifar_dataset": "images.md",
    "penstock_ext/files/file_error": "faults.md#files",
    "penstock_ext/files/hidden_path": "images.md#hidden-files",
    "penstock_ext/files/idx_dataset": "from_pytorch.md#one-script-before-and-after",
    "penstock_ext/files/state_file": "from_pytorch.md#one-script-before-and-after",
    "penstock_ext/samplers/block_shuffled": "tables.md#parquet-files",
    "penstock_ext/samplers/by_tokens": "token_budgets.md",
    "penstock_ext/samplers/mixture": "mixtures.md",
    "penstock_ext/samplers/prioritized": "mixtures.md#weights-that-the-training-sets",
    "penstock_ext/text/length_cache": "token_budgets.md#lengths-that-have-to-be-read",
    "penstock_ext/text/token_windows": "shards.md#token-files",
}
HEADERS = re.compile(r"`([\w/]+)\.(?:hpp|cuh)`")
PAGE = re.compile(r"\]\((\w+\.md(?:#[\w-]+)?)\)")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *$", re.MULTILINE)
IMAGE = re.compile(r"!\[[^\[\]]*\]")
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
COMMENT = re.compile(r"^((?: *///(?!<).*\n)+)(\n?)", re.MULTILINE)
TYPE = re.compile(r" *(?:template <.*>)?\s*(?:class|struct|union) ")


def rows_of(root):
    """Returns {header: guide} of docs/catalogue.md."""
    core, _, extensions = (
        (root / "docs/catalogue.md").read_text(encoding="utf-8").partition("\n## Extensions\n")
    )
    rows = {}
    for folder, text in (("penstock", core), ("penstock_ext", extensions)):
        for line in text.splitlines():
            cells = line.split("|")
            if len(cells) == 6 and (page := PAGE.search(cells[4])):
                rows |= {f"{folder}/{name}": page[1] for name in HEADERS.findall(cells[2])}
    return rows


def guide_of(header, rows):
    """Returns the guide of a header, "PAGE.md#HEADING", or None."""
    name = header.with_suffix("").as_posix()
    for guides in (GUIDES, rows):
        if name in guides:
            return guides[name]
    for folder in header.parents:
        for guides in (GUIDES, rows):
            if folder.as_posix() in guides:
                return guides[folder.as_posix()]
        for name, guide in rows.items():
            if Path(name).parent == folder and folder.parent != Path("."):
                return guide
    return None


def public_headers(root):
    for header in sorted((root / "include").rglob("*.[hc][pu][ph]")):
        if not {"detail", "support"} & set(header.parts):
            yield header


def titles_of(page):
    """Returns {anchor: title} of a page. The anchor of the page itself is empty."""
    titles = {}
    for level, title in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        plain = LINK.sub(r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        titles["" if level == "#" else anchor] = plain
    return titles


def label_of(guide):
    page, _, anchor = guide.partition("#")
    return f"guide_{page.removesuffix('.md')}" + (f"_{anchor}" if anchor else "")


def reference_to(root, guide):
    page, _, anchor = guide.partition("#")
    titles = titles_of(root / "docs" / page)
    title = titles[""] + (f": {titles[anchor]}" if anchor else "")
    return f'@ref {label_of(guide)} "{title.replace("`", "")}"'


def linked_header(root, header, rows):
    """Returns the header with a link to its guide in each comment of a public name."""
    text = re.sub(r"@mainpage.*", "@file", header.read_text(encoding="utf-8"))
    # Doxygen puts the namespace of the version into every name.
    text = re.sub(r"^inline namespace PENSTOCK_ABI \{", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\}  // namespace PENSTOCK_ABI", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^( *///.*?)docs/(\w+\.md)",
        lambda found: f"{found[1]}{reference_to(root, found[2])}",
        text,
        flags=re.MULTILINE,
    )
    guide = "@see " + reference_to(root, guide_of(header.relative_to(root / "include"), rows))

    def with_reference(found):
        comment, blank = found.groups()
        after = found.string[found.end() :]
        if blank:
            is_first = "///" not in found.string[: found.start()]
            return f"{comment}/** @file\n{guide} */" if is_first else found[0]
        is_member = comment.startswith(" ")
        is_name = TYPE.match(after) if is_member else re.match(r"[^\s#/]", after)
        return f"{comment}/** {guide} */ " if is_name else comment

    return COMMENT.sub(with_reference, text)


def linked_page(page):
    """Returns a page whose headings have labels. A link that leaves docs/ becomes its text."""

    def link(found):
        text, to = found[1].replace("\n", " "), found[2]
        path, _, anchor = to.partition("#")
        if re.match(r"[a-z]+:", to):
            return found[0]
        if path and not (page.parent / path).is_relative_to(page.parent) or "/" in path:
            return text
        # Doxygen takes a name with colons for another link.
        text = text.replace("`", "").replace("::", "\\::") if "::" in text else text
        return f"[{text}](@ref {label_of((path or page.name) + ('#' + anchor if anchor else ''))})"

    def heading(found):
        if page.name == "main_page.md":
            return found[0]
        level, title = found.groups()
        plain = LINK.sub(r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        guide = page.name if level == "#" else f"{page.name}#{anchor}"
        return f"{level} {plain} {{#{label_of(guide)}}}"

    parts, end = [], 0
    text = page.read_text(encoding="utf-8")
    for fence in [*FENCE.finditer(text), None]:
        prose = text[end : fence.start() if fence else len(text)]
        prose = LINK.sub(link, HEADING.sub(heading, prose))
        # Doxygen does not find the end of a text on two lines.
        parts.append(IMAGE.sub(lambda found: found[0].replace("\n", " "), prose))
        if fence:
            parts.append(f"```{fence[1].split()[0] if fence[1].split() else ''}\n{fence[2]}```")
            end = fence.end()
    return "".join(parts)


def problems_of(root):
    rows = rows_of(root)
    headers = {h.relative_to(root / "include"): h for h in public_headers(root)}
    for short in headers:
        if not (guide := guide_of(short, rows)):
            yield f"include/{short} has no guide: add a row to docs/catalogue.md"
            continue
        page, _, anchor = guide.partition("#")
        if not (root / "docs" / page).exists():
            yield f"include/{short}: there is no docs/{page}"
        elif anchor not in titles_of(root / "docs" / page):
            yield f"include/{short}: docs/{page} has no heading #{anchor}"
    names = {h.with_suffix("").as_posix() for h in headers}
    names |= {folder.as_posix() for h in headers for folder in h.parents}
    for name in [*GUIDES, *rows]:
        if name not in names:
            yield f"{name} has a guide, but include/{name} does not exist"


def problems_of_html(html):
    """Yields each page of a public type, and each other name of a namespace, without a guide."""
    pages = [p for p in html.glob("*.html") if re.match(r"(class|struct|union|concept)\w", p.stem)]
    pages = [p for p in pages if not re.search(r"-members$|^classes$|^concepts$", p.stem)]
    if len(pages) < 300:
        yield f"expected 300 pages of public types or more, found {len(pages)}"
    for page in sorted(pages):
        if 'href="guide_' not in page.read_text(encoding="utf-8"):
            yield f"{page.name} does not link a guide"
    for page in sorted(html.glob("*.html")):
        if raw := re.search(r"(?:^|[( ])@(?:ref|see|(?:sub)*section|image) .{,60}",
                            page.read_text(encoding="utf-8"), re.MULTILINE):
            yield f"{page.name}: Doxygen has not read {raw[0].strip()}"
    for page in sorted(html.glob("namespacepenstock*.html")):
        parts = page.read_text(encoding="utf-8").split('<h2 class="memtitle">')
        for part in parts[1:]:
            if 'href="guide_' not in part:
                title = re.sub(r"<[^>]*>|&#\d+;", "", part.partition("</h2>")[0]).strip()
                yield f"{page.name}: {title} does not link a guide"


def write(root, folder):
    rows = rows_of(root)
    texts = {header: linked_header(root, header, rows) for header in public_headers(root)}
    for page in (root / "docs").glob("*.md"):
        texts[page] = linked_page(page)
    for file, text in texts.items():
        to = folder / file.relative_to(root)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")


def main():
    path = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "write":
        write(path, Path(sys.argv[3]))
        return 0
    problems = list(problems_of(path) if sys.argv[1] == "check" else problems_of_html(path))
    print("\n".join(problems) if problems else "every public name has a guide")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
