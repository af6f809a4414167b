"""A manager: watches the cluster, leads it when its turn comes."""

from mesh.manager.manager import run as run
from mesh.manager.service import ManagerService as ManagerService
