"""Stream functions with a state that pass events on, one by one, with further attributes.

from S#window.time(1 min)#approximate:distinctCount(ip) select distinctCount insert into O;
"""

from mesh.operators.event_functions.registry import EVENT_FUNCTIONS as EVENT_FUNCTIONS
from mesh.operators.event_functions.registry import EventFunction as EventFunction
