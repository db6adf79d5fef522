"""Java properties: what ``java.util.Properties.load`` makes of the lines that its documentation names."""

from pulsar_admin.store.codec.properties import parse_properties


def test_lines_of_the_documentation() -> None:
    """Of the class's page in Java 17: separators, continued lines, comments, escapes, a key alone."""
    text = (
        "Truth = Beauty\n Truth2:Beauty\nTruth3   :Beauty\n"
        "fruits                           apple, banana, pear, \\\n                                 cantaloupe, watermelon, \\\n"
        "                                 kiwi, mango\ncheeses\n"
        "# comment = x\n   ! another\n\nk\\:e\\=y = a\\tb\\u0041\\\\\nlast=1\nlast=2\n"
    )
    assert parse_properties(text) == {
        "Truth": "Beauty",
        "Truth2": "Beauty",
        "Truth3": "Beauty",
        "fruits": "apple, banana, pear, cantaloupe, watermelon, kiwi, mango",
        "cheeses": "",
        "k:e=y": "a\tbA\\",
        "last": "2",
    }
