"""HTTP: everything between a socket and the engine. Needs the extra `serve`."""

from statewise.serving.http.app import Path as Path
from statewise.serving.http.error import as_html as as_html
from statewise.serving.http.error import as_json as as_json
from statewise.serving.http.error import invalid as invalid
from statewise.serving.http.request import Body as Body
from statewise.serving.http.request import parse as parse
from statewise.serving.http.server import Server as Server
from statewise.serving.http.server import listen as listen
from statewise.serving.http.server import serve as serve
