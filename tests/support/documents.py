"""Links of Markdown pages, and whether they lead somewhere."""
import functools
import os
import re


def text_of(path):
    with open(path, encoding="utf-8") as handle:
        return handle.read()


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


@functools.cache
def anchors_of(path):
    """The places of a page, as GitHub names headings; and those it names itself."""
    text = without_code(text_of(path))
    headings = [re.sub(r"<[^>]*>|\]\([^)]*\)|[`*\[]", "", heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings} | set(re.findall(r'<a id="([^"]+)"', text))


def links_of(path):
    """(file, place in it or empty) of every link to a file, as the page writes them; pictures of HTML, too."""
    text = re.sub(r"`[^`\n]*`", "", without_code(text_of(path)))
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'\b(?:src|srcset|href)="([^"]+)"', text)
    return [(link.partition("#")[0], link.partition("#")[2]) for link in found if "://" not in link and not link.startswith("mailto:")]


def dead_links(paths):
    """What leads nowhere, and how many links lead to places within pages."""
    dead, places = [], 0
    for path in paths:
        for link, place in links_of(path):
            target = os.path.join(os.path.dirname(path), link) if link else path
            if not os.path.exists(target):
                dead.append("%s: %s is not there" % (path, link))
            elif place:
                places += 1
                if place not in anchors_of(target):
                    dead.append("%s: %s has no place #%s" % (path, link or "the page", place))
    return dead, places
