"""How files come to be: whole or not at all, never through a link, by one process at a time."""

from statewise.disk.lock import LOCK as LOCK
from statewise.disk.lock import locked as locked
from statewise.disk.lock import was_locked as was_locked
from statewise.disk.write import TEMPORARY as TEMPORARY
from statewise.disk.write import append as append
from statewise.disk.write import for_json as for_json
from statewise.disk.write import is_plain as is_plain
from statewise.disk.write import make_folder as make_folder
from statewise.disk.write import open_to_append as open_to_append
from statewise.disk.write import refuse_links as refuse_links
from statewise.disk.write import replacing as replacing
from statewise.disk.write import sync as sync
from statewise.disk.write import write as write
