"""HTTP: everything between a socket and the engine. Needs the extra `serve`."""

from statewise.serving.http.server import Server as Server
from statewise.serving.http.server import listen as listen
from statewise.serving.http.server import serve as serve
