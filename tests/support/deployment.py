"""A deployment of the original, as ``mesh migrate`` reads it."""

from __future__ import annotations

DEPLOYMENT = """
wso2.carbon:
  id: node-1
siddhi:
  properties:
    partitionById: true
    shardId: node-1
  refs:
    - ref:
        name: orders
        type: http
        properties:
          receiver.url: http://0.0.0.0:8280/orders
          basic.auth.enabled: true
          basic.auth.password: ${sec:orders.pw}
wso2.datasources:
  dataSources:
    - name: ORDERS_DB
      definition:
        type: RDBMS
        configuration:
          jdbcUrl: jdbc:mysql://db:3306/orders
          username: u
          password: hunter2
    - name: LOCAL_DB
      definition: {type: RDBMS, configuration: {jdbcUrl: 'jdbc:h2:./x'}}
state.persistence:
  enabled: true
  revisionsToKeep: 3
deployment.config:
  type: distributed
  minResourceCount: 2
  heartbeatInterval: 1000
some.other: {a: 1}
"""
