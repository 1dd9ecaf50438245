"""Ad-hoc commands for operators, offered by the publish-subscribe service."""
