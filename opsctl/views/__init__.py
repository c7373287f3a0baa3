"""Values as people and programs read them: rich renderables, and JSON documents."""
