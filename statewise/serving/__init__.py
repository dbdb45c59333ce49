"""One server for any state: an engine that batches texts of every model, and the HTTP side in `serving.http`."""

from statewise.serving.base import AnyEngine as AnyEngine
from statewise.serving.cluster import Cluster as Cluster
from statewise.serving.engine import Engine as Engine
from statewise.serving.job import Event as Event
from statewise.serving.job import Job as Job
from statewise.serving.job import Refused as Refused
from statewise.serving.job import Scored as Scored
from statewise.serving.metrics import Metrics as Metrics
from statewise.serving.served import Served as Served
from statewise.serving.store import StateStore as StateStore
from statewise.serving.store import is_state_id as is_state_id
