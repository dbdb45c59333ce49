"""The lab's page over a server of this machine. Needs the extra `serve`."""

from statewise.lab.live.site import serve_live as serve_live
