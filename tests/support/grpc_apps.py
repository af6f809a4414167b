"""Apps that call and serve over gRPC."""

from __future__ import annotations

SERVICE = "org.wso2.grpc.EventService"
APP = """@App:name('{app}')
SOURCE define stream S (n int);
SINK define stream T (n int);
from S select n insert into T;
"""
ROWS = [{"n": n} for n in range(4)]
