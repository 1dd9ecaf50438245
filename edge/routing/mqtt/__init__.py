"""Route packets to the handlers that features register, and answer them."""

from edge.routing.mqtt.hooks import Handler as Handler
from edge.routing.mqtt.hooks import MqttHooks as MqttHooks
from edge.routing.mqtt.hooks import Peer as Peer
